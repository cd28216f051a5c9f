// The log of a slug as it comes. Its lines are a handler's own: shown as text.
import { follow } from './api.js';
import { fault, field, h } from './dom.js';

const MOST_LINES = 1000;

export function logsView({ path, signal, slug }) {
  const list = h('div', { class: 'log', role: 'log', tabindex: '0', 'aria-label': `Log of ${slug}` });
  const state = h('p', { class: 'soft small', role: 'status' }, 'Connecting …');
  const filter = h('input', { type: 'search', autocomplete: 'off', oninput: () => [...list.children].forEach(hide) });
  const hide = (line) => {
    line.hidden = !line.textContent.toLowerCase().includes(filter.value.toLowerCase());
  };
  const add = (entry) => {
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    const line = h(
      'div',
      { class: levelOf(entry) },
      h('time', {}, String(entry.time).slice(0, 19).replace('T', ' ')),
      ' ',
      textOf(entry),
    );
    hide(line);
    list.append(line);
    while (list.childElementCount > MOST_LINES) list.firstElementChild.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
  };
  follow(`${path}/logs?requests=true`, signal, add, (text) => {
    state.textContent = text;
  }).catch((error) => state.replaceWith(fault(error)));
  return [h('div', { class: 'row spread' }, field('Show lines with', filter), state), list];
}

function levelOf({ level, kind, status }) {
  if (level === 'error' || kind === 'exception' || status >= 500) return 'bad';
  return level === 'warn' ? 'warn' : undefined;
}

function textOf({ kind, time: _, id: __, ...entry }) {
  if (kind === 'request') return `${entry.method} ${entry.path} ${entry.status} ${entry.ms} ms`;
  const { level, event, text, message, stack, ...rest } = entry;
  const more = Object.keys(rest).length > 0 ? JSON.stringify(rest) : '';
  return [kind, level, event, text ?? message, stack, more].filter(Boolean).join(' ');
}
