// Builds what is shown by the DOM's own calls: what strangers wrote is text, never markup.

/**
 * An element. Attributes: `on…` listeners, true and false for flags, undefined for none; everything else is text.
 * Children: nodes, text, lists of them; undefined and false are left out.
 */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false),
  );
  return element;
}

/** Elements of a drawing. */
export function s(name, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/**
 * A table that is a list on phones. @param columns `{name, of: (row) => content, number}`
 * @param empty what to say without rows
 */
export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return h('p', { class: 'soft' }, empty);
  return h(
    'table',
    { class: 'stack' },
    h('caption', { class: 'sr' }, caption),
    h(
      'thead',
      {},
      h(
        'tr',
        {},
        columns.map(({ name, number }) =>
          h('th', { scope: 'col', class: number && 'number' }, name || h('span', { class: 'sr' }, 'Actions')),
        ),
      ),
    ),
    h(
      'tbody',
      {},
      rows.map((row) =>
        h(
          'tr',
          {},
          columns.map(({ name, of, number }) =>
            h('td', { 'data-label': name || undefined, class: number && 'number' }, boxed(of(row))),
          ),
        ),
      ),
    ),
  );
}

/** On phones the name of the column stands beside it. */
function boxed(content) {
  return content === '' || content === false || content === undefined ? '' : h('div', {}, content);
}

export function facts(entries) {
  return h(
    'dl',
    { class: 'facts' },
    entries.filter(Boolean).map(([name, ...value]) => [h('dt', {}, name), h('dd', {}, ...value)]),
  );
}

export function field(label, control, hint) {
  return h('label', { class: 'field' }, label, hint && h('span', { class: 'hint' }, hint), control);
}

export function code(text) {
  return h('code', {}, text);
}

export function badge(text, level = '') {
  return h('span', { class: `badge ${level}` }, text);
}

/** Of the metadata of a deployment. */
export function stateBadge({ state, suspended, expiresSoon }) {
  if (suspended) return badge('suspended', 'bad');
  if (state !== 'active') return badge(state, state === 'expired' ? 'warn' : '');
  return expiresSoon ? badge('expires soon', 'warn') : badge('active', 'good');
}

/** `2026-11-01 12:00` of this browser's day. */
export function when(iso) {
  if (!iso) return '–';
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return String(iso);
  const two = (value) => String(value).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return h('time', { datetime: iso, title: iso }, `${day} ${two(date.getHours())}:${two(date.getMinutes())}`);
}

export function daysLeft(iso) {
  const days = Math.floor((new Date(iso) - Date.now()) / 86_400_000);
  if (days < 0) return 'over';
  if (days === 0) return 'today';
  return `in ${days} day${days === 1 ? '' : 's'}`;
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let value = count;
  let unit = -1;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Saves what was fetched, under a name without folders. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h('a', {
    href: url,
    download:
      name
        .split('/')
        .pop()
        ?.replace(/[^\w.()-]+/g, '_')
        .slice(-120) || 'value',
  }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Said to screen readers. */
export function say(text) {
  document.getElementById('said').textContent = text;
}

/** What went wrong, with the fields that a refusal points at. */
export function fault(error) {
  const errors = Array.isArray(error.errors) ? error.errors.slice(0, 20) : [];
  return h(
    'div',
    { class: 'note bad', role: 'alert' },
    h('p', {}, error.message),
    errors.length > 0 &&
      h(
        'ul',
        {},
        errors.map(({ pointer, file, line, column, detail, reason, message }) =>
          h(
            'li',
            {},
            [
              pointer ?? (file && `${file}:${line ?? ''}${column === undefined ? '' : `:${column}`}`),
              detail ?? reason ?? message,
            ]
              .filter(Boolean)
              .join(' '),
          ),
        ),
      ),
    error.requestId && h('p', { class: 'small' }, 'Request ', code(error.requestId)),
  );
}

/**
 * A form or a button that does one thing: it is off meanwhile, and what went wrong is shown below it.
 * @param work does it; what it answers is said when it is done
 */
export function action(button, work, place) {
  let shown;
  return async (event) => {
    event?.preventDefault();
    if (button.disabled) return;
    shown?.remove();
    button.disabled = true;
    button.setAttribute('aria-busy', 'true');
    try {
      const said = await work();
      if (said) say(said);
    } catch (error) {
      if (error.name !== 'AbortError') {
        shown = fault(error);
        (place ?? button.closest('form, .row, td') ?? button).after(shown);
      }
    }
    button.disabled = false;
    button.removeAttribute('aria-busy');
  };
}

/** A form with one button at its end. @param work gets its fields by name */
export function form(attributes, fields, label, work, look) {
  const button = h('button', { class: look }, label);
  const element = h('form', attributes, fields, h('p', { class: 'row' }, button));
  element.addEventListener(
    'submit',
    action(button, () => work(Object.fromEntries(new FormData(element)), element)),
  );
  return element;
}

export function button(label, look, work, more = {}) {
  const element = h('button', { type: 'button', class: look, ...more }, label);
  element.addEventListener('click', action(element, work));
  return element;
}
