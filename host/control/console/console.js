/** Served as a file; the policy of the console allows no other script. */
const login = document.querySelector('form#log-in');
function useLink() {
  if (!login || location.hash.length < 2) return;
  const code = decodeURIComponent(location.hash.slice(1));
  // Neither the history nor a page that follows keeps it.
  history.replaceState(null, '', location.pathname + location.search);
  login.elements.token.value = code;
  login.requestSubmit();
}

useLink();
// The link may be opened where this page is already.
addEventListener('hashchange', useLink);

const MOST_LINES = 1000;

/** Lines of a log as they come: text, never HTML. */
function follow(list) {
  const state = document.getElementById(list.dataset.state);
  const events = new EventSource(list.dataset.follow);
  const seen = new Set();
  events.onopen = () => {
    state.textContent = 'Live.';
  };
  events.onerror = () => {
    state.textContent = 'Interrupted; it is tried again.';
  };
  events.onmessage = ({ data, lastEventId }) => {
    const entry = JSON.parse(data);
    // One without an id has that of the line before.
    if (lastEventId && entry.id !== undefined) {
      if (seen.has(lastEventId)) return;
      seen.add(lastEventId);
    }
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    const line = document.createElement('div');
    const time = document.createElement('time');
    time.textContent = entry.time.slice(0, 19).replace('T', ' ');
    line.append(time, ' ', textOf(entry));
    list.append(line);
    while (list.childElementCount > MOST_LINES) list.firstElementChild.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
  };
}

function textOf({ kind, time, id, ...entry }) {
  if (kind === 'request') return `${entry.method} ${entry.path} ${entry.status} ${entry.ms} ms`;
  const { level, event, text, message, stack, ...rest } = entry;
  const more = Object.keys(rest).length > 0 ? JSON.stringify(rest) : '';
  return [kind, level, event, text ?? message, stack, more].filter(Boolean).join(' ');
}

for (const list of document.querySelectorAll('[data-follow]')) follow(list);
