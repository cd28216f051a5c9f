// What a slug keeps: SQL of D1, keys of KV, objects of R2, queues that wait. Names and values are anybody's: shown as text.
import { ask, get, send, textOf } from './api.js';
import { badge, button, bytes, code, facts, field, form, h, save, table, when } from './dom.js';

const MOST_ROWS = 500;

export async function dataView(view) {
  const { slug, stores, parts } = view;
  if (stores.length === 0)
    return [h('p', { class: 'soft' }, 'It has no KV, D1, R2 or queue. The manifest says what a handler finds in env.')];
  const at = stores.find(({ name }) => name === parts[3]) ?? stores[0];
  const path = `${view.path}/data/${encodeURIComponent(at.name)}`;
  const render = { d1: sql, kv: keys, r2: objects, queues: queue }[at.kind];
  return [
    stores.length > 1 &&
      h(
        'nav',
        { class: 'row', 'aria-label': 'Stores' },
        stores.map(({ kind, name }) =>
          h(
            'a',
            {
              href: `#/s/${slug}/data/${encodeURIComponent(name)}`,
              'aria-current': name === at.name ? 'page' : undefined,
              class: `button small${name === at.name ? '' : ' quiet'}`,
            },
            `${name} `,
            kind.toUpperCase(),
          ),
        ),
      ),
    await render({ ...view, path, name: at.name }),
  ];
}

async function sql({ path, name }) {
  const shown = h('div', { 'aria-live': 'polite' });
  const run = async (text, params) => {
    const [result] = await send('POST', path, { statements: [{ sql: text, ...(params ? { params } : {}) }] });
    return result;
  };
  const tables = (
    await run(
      "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE '\\_cf\\_%' ESCAPE '\\' ORDER BY name LIMIT 500",
    )
  ).results;
  const input = h('textarea', { name: 'sql', rows: '4', required: true, spellcheck: 'false' });
  const element = form(
    { class: 'card' },
    [field(`SQL for ${name}`, input, 'One statement. It acts on the live data.')],
    'Run',
    async ({ sql: text }) => {
      const result = await run(text);
      shown.replaceChildren(rows(result));
      return `${result.results?.length ?? 0} rows.`;
    },
  );
  const open = (of) =>
    button(of, 'quiet small', () => {
      input.value = `SELECT * FROM "${of.replaceAll('"', '""')}" LIMIT 100`;
      element.requestSubmit();
    });
  return [
    h('h2', {}, 'Tables'),
    tables.length === 0
      ? h('p', { class: 'soft' }, 'There is no table yet.')
      : h(
          'p',
          { class: 'row' },
          tables.map(({ name: of }) => open(of)),
        ),
    element,
    shown,
  ];
}

function rows({ results = [], meta = {} }) {
  const facts = [
    `${results.length} row${results.length === 1 ? '' : 's'}`,
    meta.changes && `${meta.changes} changed`,
    meta.duration !== undefined && `${Number(meta.duration).toFixed(1)} ms`,
  ];
  const names = Object.keys(results[0] ?? {});
  return h(
    'section',
    {},
    h(
      'p',
      { class: 'soft small' },
      facts.filter(Boolean).join(', '),
      results.length > MOST_ROWS && `; the first ${MOST_ROWS} are shown`,
    ),
    names.length > 0 &&
      h(
        'div',
        { class: 'card scroll', tabindex: '0', role: 'region', 'aria-label': 'Result' },
        table(
          'Result',
          names.map((name) => ({ name, number: typeof results[0][name] === 'number', of: (row) => cell(row[name]) })),
          results.slice(0, MOST_ROWS),
          '',
        ),
      ),
  );
}

function cell(value) {
  if (value === null || value === undefined) return h('span', { class: 'soft' }, 'null');
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  return text.length > 2000 ? `${text.slice(0, 2000)} …` : text;
}

/** A list of keys by pages, with a search by prefix. @param page `(query) => {rows, cursor}` */
function lister({ page, columns, caption, empty, value }) {
  const all = [];
  const shown = h('div', {});
  const place = h('p', { class: 'row' });
  let prefix = '';
  const load = async (cursor) => {
    const query = new URLSearchParams({ limit: '100', ...(prefix ? { prefix } : {}), ...(cursor ? { cursor } : {}) });
    const found = await page(query);
    if (!cursor) all.length = 0;
    all.push(...found.rows);
    shown.replaceChildren(table(caption, columns, all, prefix ? 'No key begins so.' : empty));
    place.replaceChildren();
    if (found.cursor) place.append(button('More', 'quiet', () => load(found.cursor)));
  };
  const search = form(
    { role: 'search', class: 'fields' },
    [
      field(
        'Keys that begin with',
        h('input', { type: 'search', name: 'prefix', autocomplete: 'off', spellcheck: 'false' }),
      ),
    ],
    'Show',
    async (given) => {
      prefix = given.prefix;
      value.replaceChildren();
      await load();
      return `${all.length} keys.`;
    },
    'quiet',
  );
  return { load, element: h('section', {}, search, value, shown, place) };
}

/** Shows the beginning of a value, as text. */
async function showValue(path, key, into, more) {
  const response = await ask('GET', `${path}/value?key=${encodeURIComponent(key)}`, { accept: '*/*' });
  const { text, isWhole, isText } = await textOf(response);
  const metadata = response.headers.get('x-metadata');
  into.replaceChildren(
    h(
      'section',
      { class: 'card' },
      h('h2', {}, 'Value'),
      facts([
        ['Key', code(key)],
        metadata && ['Metadata', code(decodeURIComponent(metadata))],
        response.headers.get('content-type') && ['Type', response.headers.get('content-type')],
      ]),
      isText
        ? h('pre', { tabindex: '0' }, text === '' ? '(empty)' : text)
        : h('p', { class: 'soft' }, 'It is no text; download it.'),
      !isWhole && h('p', { class: 'soft' }, 'This is the beginning; download it for all.'),
      more,
    ),
  );
  into.querySelector('h2').tabIndex = -1;
  into.querySelector('h2').focus();
}

function download(path, key) {
  return button(
    'Download',
    'quiet small',
    async () => {
      const response = await ask('GET', `${path}/value?key=${encodeURIComponent(key)}`, { accept: '*/*' });
      save(await response.blob(), key);
      return 'The file is saved.';
    },
    { 'aria-label': `Download ${key}` },
  );
}

function remover(path, key, load, into) {
  return button(
    'Delete',
    'quiet small',
    async () => {
      if (!confirm(`Delete ${key}?`)) return;
      await ask('DELETE', `${path}/value?key=${encodeURIComponent(key)}`);
      into.replaceChildren();
      await load();
      return 'Deleted.';
    },
    { 'aria-label': `Delete ${key}` },
  );
}

async function keys({ path, signal }) {
  const value = h('div', {});
  const list = lister({
    value,
    caption: 'Keys',
    empty: 'There is no key yet.',
    page: async (query) => {
      const { keys: found, list_complete: isAll, cursor } = await get(`${path}?${query}`, signal);
      return { rows: found, cursor: isAll ? undefined : cursor };
    },
    columns: [
      { name: 'Key', of: ({ name }) => code(name) },
      { name: 'Ends', of: ({ expiration }) => (expiration ? when(new Date(expiration * 1000).toISOString()) : '') },
      {
        name: '',
        number: true,
        of: ({ name }) =>
          h(
            'span',
            { class: 'row' },
            button(
              'View',
              'quiet small',
              () => showValue(path, name, value, h('p', { class: 'row' }, download(path, name))),
              { 'aria-label': `View ${name}` },
            ),
            remover(path, name, list.load, value),
          ),
      },
    ],
  });
  await list.load();
  const set = form(
    { class: 'card' },
    [
      field(
        'Key',
        h('input', { name: 'key', required: true, maxlength: '512', autocomplete: 'off', spellcheck: 'false' }),
      ),
      field('Value', h('textarea', { name: 'value', rows: '3', spellcheck: 'false' })),
      field(
        'Seconds until it ends',
        h('input', { name: 'ttl', type: 'number', min: '60', class: 'short' }),
        'Empty: never.',
      ),
    ],
    'Set',
    async ({ key, value: text, ttl }, element) => {
      const query = new URLSearchParams({ key, ...(ttl ? { ttl } : {}) });
      await ask('PUT', `${path}/value?${query}`, { body: text.replaceAll('\r\n', '\n'), type: 'text/plain' });
      element.reset();
      await list.load();
      return `${key} is set.`;
    },
  );
  return [h('details', {}, h('summary', {}, 'Set a value'), set), list.element];
}

async function objects({ path, signal }) {
  const value = h('div', {});
  const list = lister({
    value,
    caption: 'Objects',
    empty: 'There is no object yet.',
    page: async (query) => {
      const { objects: found, truncated, cursor } = await get(`${path}?${query}`, signal);
      return { rows: found, cursor: truncated ? cursor : undefined };
    },
    columns: [
      { name: 'Key', of: ({ key }) => code(key) },
      { name: 'Size', number: true, of: ({ size }) => bytes(size) },
      { name: 'Written', of: ({ uploaded }) => when(uploaded) },
      {
        name: '',
        number: true,
        of: ({ key }) =>
          h(
            'span',
            { class: 'row' },
            button('View', 'quiet small', () => showValue(path, key, value), { 'aria-label': `View ${key}` }),
            download(path, key),
            remover(path, key, list.load, value),
          ),
      },
    ],
  });
  await list.load();
  const put = form(
    { class: 'card' },
    [
      field('File', h('input', { type: 'file', name: 'file', required: true })),
      field(
        'Key',
        h('input', { name: 'key', autocomplete: 'off', spellcheck: 'false' }),
        'Empty: the name of the file.',
      ),
    ],
    'Store',
    async ({ file, key }, element) => {
      const name = key || file.name;
      await ask('PUT', `${path}/value?key=${encodeURIComponent(name)}`, {
        body: file,
        type: file.type || 'application/octet-stream',
      });
      element.reset();
      await list.load();
      return `${name} is stored.`;
    },
  );
  return [h('details', {}, h('summary', {}, 'Store a file'), put), list.element];
}

async function queue({ path, name, signal }) {
  const measured = await get(path, signal);
  return h(
    'section',
    { class: 'card' },
    h('h2', {}, `Queue ${name}`),
    facts(Object.entries(measured).map(([key, value]) => [key, badge(String(value))])),
  );
}
