// A new deployment, and new code for one that is there: files are dropped, the wallet pays.
import { send } from './api.js';
import { bytes, code, fault, field, form, h, say } from './dom.js';
import { chosen, dropped, project } from './files.js';
import { pay } from './wallet.js';

const BINDINGS = [
  ['kv', 'KV', 'env.STORE, keys and values'],
  ['d1', 'D1', 'env.DB, SQL'],
  ['r2', 'R2', 'env.BUCKET, files'],
];

/** Takes files by dropping or choosing. @param onProject told of what was taken; undefined: of nothing any more */
export function filesPart(onProject) {
  const shown = h('div', { 'aria-live': 'polite' });
  let state;
  async function take(files) {
    shown.replaceChildren();
    state = undefined;
    try {
      const taken = await project(await files);
      state = { project: taken, main: taken.main };
      shown.append(
        summary(taken, (main) => {
          state.main = main;
        }),
      );
    } catch (error) {
      shown.append(fault(error));
    }
    onProject(state?.project);
  }
  const one = h('input', { type: 'file', multiple: true, onchange: (event) => take(chosen(event.target.files)) });
  const folder = h('input', {
    type: 'file',
    webkitdirectory: true,
    onchange: (event) => take(chosen(event.target.files)),
  });
  const zone = h(
    'div',
    {
      class: 'drop',
      ondragover: (event) => {
        event.preventDefault();
        zone.classList.add('over');
      },
      ondragleave: () => zone.classList.remove('over'),
      ondrop: (event) => {
        event.preventDefault();
        zone.classList.remove('over');
        take(dropped(event.dataTransfer));
      },
    },
    h(
      'p',
      {},
      h('strong', {}, 'Drop a file or a folder here'),
      h('br'),
      h(
        'span',
        { class: 'soft' },
        'JavaScript or TypeScript with a default export that has fetch(); the host bundles it.',
      ),
    ),
    h('div', { class: 'fields' }, field('Or choose files', one), field('Or a folder', folder)),
  );
  return {
    element: h('div', {}, zone, shown),
    /** The code for the API's body. @throws Error without files */
    async body() {
      if (!state) throw new Error('Choose a file or a folder first.');
      const modules = await state.project.modules();
      const [only, ...others] = Object.entries(modules);
      if (others.length === 0 && typeof only[1] === 'string') return { code: only[1] };
      return { modules, main: state.main };
    },
  };
}

function summary({ names, entries, main, size, notes, settings, secrets }, onMain) {
  const extra = Object.keys(settings);
  return h(
    'div',
    {},
    h(
      'p',
      {},
      `${names.length} file${names.length === 1 ? '' : 's'}, ${bytes(size)}: `,
      names.slice(0, 8).map((name, index) => [index > 0 && ', ', code(name)]),
      names.length > 8 && ' …',
    ),
    entries.length > 1 &&
      field(
        'Begins with',
        h(
          'select',
          { onchange: (event) => onMain(event.target.value) },
          entries.map((name) => h('option', { value: name, selected: name === main }, name)),
        ),
      ),
    extra.length > 0 && h('p', { class: 'soft' }, 'From turnpike.json: ', extra.join(', '), '.'),
    secrets.length > 0 && h('p', { class: 'note warn' }, 'It wants the secrets ', secrets.join(', '), '.'),
    notes.map((note) => h('p', { class: 'note warn' }, note)),
  );
}

export function deployView({ about }) {
  let settings = {};
  const slug = h('input', {
    name: 'slug',
    required: true,
    minlength: '3',
    maxlength: '40',
    pattern: '[a-z0-9][a-z0-9\\-]+[a-z0-9]',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const bindings = h(
    'fieldset',
    {},
    h('legend', {}, 'What it keeps'),
    h(
      'div',
      { class: 'row' },
      BINDINGS.map(([key, name, hint]) =>
        h('label', {}, h('input', { type: 'checkbox', name: key }), `${name} `, h('span', { class: 'soft' }, hint)),
      ),
    ),
  );
  const files = filesPart((found) => {
    settings = found?.settings ?? {};
    bindings.hidden = settings.bindings !== undefined;
    if (found?.slug && slug.value === '') slug.value = found.slug;
  });
  const progress = h('p', { role: 'status', class: 'soft' });
  const element = form(
    { class: 'card' },
    [
      files.element,
      field('Slug', slug, `The name in its address, ${about.home}/…: 3 to 40 characters a-z, 0-9 and -.`),
      bindings,
      field(
        'Secrets',
        h('textarea', { name: 'secrets', rows: '3', spellcheck: 'false', autocomplete: 'off' }),
        'NAME=value, one a line. They are encrypted, and never shown again.',
      ),
      progress,
    ],
    `Deploy for ${about.deploy} USD`,
    async (given) => {
      const secrets = secretsOf(given.secrets);
      const asked = Object.fromEntries(BINDINGS.filter(([key]) => given[key]).map(([key]) => [key, true]));
      const body = {
        ...settings,
        slug: given.slug.trim(),
        ...(await files.body()),
        ...(settings.bindings === undefined && Object.keys(asked).length > 0 ? { bindings: asked } : {}),
        ...(Object.keys(secrets).length > 0 ? { secrets } : {}),
      };
      const tell = (text) => {
        progress.textContent = text;
      };
      try {
        const made = await pay('/_admin/deploy', JSON.stringify(body), about.deploy, about.chain, tell);
        say(`${made.slug} is live.`);
        location.hash = `#/s/${made.slug}`;
      } finally {
        tell('');
      }
    },
  );
  return [
    h('h1', {}, 'Deploy'),
    h(
      'p',
      { class: 'lead' },
      `${about.deploy} USD for ${about.termDays} days, paid by your wallet, which then owns the slug. What is refused costs nothing.`,
    ),
    about.testMoney && h('p', { class: 'note warn' }, 'Test money: what is paid on this host is worth nothing.'),
    element,
  ];
}

/** @throws Error for a line that is none */
function secretsOf(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== '');
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^\s*([A-Za-z_]\w*)=(.*)$/.exec(line) ?? [];
      if (name === undefined) throw new Error('A line of the secrets is not NAME=value.');
      return [name, value];
    }),
  );
}

/** New code for a slug that is there. */
export function updateForm(slug, reload) {
  const files = filesPart(() => undefined);
  const preview = h(
    'label',
    {},
    h('input', { type: 'checkbox', name: 'preview' }),
    'As a preview, at an address of its own; what is live stays',
  );
  return form(
    { class: 'card' },
    [h('h2', {}, 'New code'), files.element, h('p', {}, preview)],
    'Update',
    async (given) => {
      const sent = { ...(await files.body()), ...(given.preview ? { preview: true } : {}) };
      const made = await send('PUT', `/_admin/code/${slug}`, sent);
      await reload();
      return given.preview ? `Version ${made.preview.version} is a preview.` : `Version ${made.version} is live.`;
    },
  );
}
