// One slug: what it is, its code, secrets, domains and crons. What is large, or rarely looked at, is loaded with its tab.
import { ask, get, later, send } from './api.js';
import { badge, button, bytes, code, daysLeft, facts, field, form, h, stateBadge, table, when } from './dom.js';
import { figures, usageView } from './usage.js';
import { pay } from './wallet.js';

const KINDS = { d1: 'DB', kv: 'STORE', r2: 'BUCKET', queues: undefined };

const TABS = [
  ['', 'Overview', overview],
  ['code', 'Code', codeView],
  ['logs', 'Logs', async (view) => (await later(import('./logs.js'))).logsView(view)],
  ['data', 'Data', async (view) => (await later(import('./data.js'))).dataView(view)],
  ['secrets', 'Secrets', secretsView],
  ['usage', 'Usage', usageView],
  ['domains', 'Domains', domainsView],
  ['crons', 'Crons', cronsView],
];

export async function slugView(view) {
  const [, slug, at = ''] = view.parts;
  const path = `/_admin/${encodeURIComponent(slug)}`;
  const about = await get(`/_admin/get/${encodeURIComponent(slug)}`, view.signal);
  const [, name, render] = TABS.find(([tab]) => tab === at) ?? TABS[0];
  const content = await render({ ...view, slug: about.slug, path, deployment: about, stores: storesOf(about) });
  return [
    h('p', { class: 'small' }, h('a', { href: '#/' }, 'Your deployments'), ' / ', about.slug),
    h(
      'div',
      { class: 'row' },
      h('h1', {}, at === '' ? about.slug : `${about.slug}: ${name.toLowerCase()}`),
      stateBadge(about),
    ),
    h(
      'nav',
      { class: 'tabs', 'aria-label': about.slug },
      TABS.map(([tab, label]) =>
        h(
          'a',
          { href: `#/s/${about.slug}${tab && `/${tab}`}`, 'aria-current': tab === at ? 'page' : undefined },
          label,
        ),
      ),
    ),
    content,
  ];
}

/** `[{kind, name}]` of a deployment that can be looked into. */
function storesOf({ bindings = {} }) {
  return Object.entries(KINDS).flatMap(([kind, usual]) => {
    const bound = bindings[kind];
    if (!bound) return [];
    if (typeof bound !== 'object') return usual ? [{ kind, name: usual }] : [];
    return Object.keys(bound).map((name) => ({ kind, name }));
  });
}

const link = (href) => h('a', { href, rel: 'noreferrer', target: '_blank' }, href);

async function overview({ about, deployment, stores, slug, path, signal, reload }) {
  const { url, subdomainUrl, version, owner, expiresAt, suspended, paidRoutes, payTo, domains, runtime } = deployment;
  const [usage, renewals] = await Promise.all([
    get(`${path}/usage?days=30`, signal).catch(() => undefined),
    // Not every host has mandates, and not every session may ask.
    expiresAt ? get(`/_admin/renew/${slug}/auto`, signal).catch(() => undefined) : undefined,
  ]);
  const progress = h('p', { role: 'status', class: 'soft' });
  const renew = button(`Renew for ${about.renew} USD`, undefined, async () => {
    try {
      const renewed = await pay(`/_admin/renew/${slug}`, undefined, about.renew, about.chain, (text) => {
        progress.textContent = text;
      });
      await reload();
      return `Renewed: it runs until ${renewed.expiresAt.slice(0, 10)}.`;
    } finally {
      progress.textContent = '';
    }
  });
  return [
    suspended && h('p', { class: 'note bad' }, `The operator has suspended it: ${suspended.reason ?? ''}`),
    usage && figures(usage),
    h(
      'div',
      { class: 'cards wide' },
      h(
        'section',
        { class: 'card' },
        h('h2', {}, 'Where and what'),
        facts([
          ['Address', link(url)],
          subdomainUrl && ['For pages', link(subdomainUrl)],
          domains.length > 0 && ['Domains', domains.map(({ domain, state }) => `${domain} (${state})`).join(', ')],
          ['Version', String(version)],
          ['Runs now', runtime.state],
          runtime.lastExit && ['Last end', `${runtime.lastExit.reason}: ${runtime.lastExit.detail}`],
          stores.length > 0 && ['Keeps data in', stores.map(({ name }, index) => [index > 0 && ', ', code(name)])],
          ['Owner', code(owner.split(':').pop())],
        ]),
      ),
      expiresAt &&
        h(
          'section',
          { class: 'card' },
          h('h2', {}, 'Term'),
          facts([['Ends', when(expiresAt), ' ', h('span', { class: 'soft' }, daysLeft(expiresAt))]]),
          h('p', { class: 'soft' }, `A renewal adds ${about.termDays} days. The wallet that owns the slug pays it.`),
          progress,
          h('p', { class: 'row' }, renew),
          renewals && autoRenewal(renewals.auto, slug, reload),
        ),
      paidRoutes.length > 0 &&
        h(
          'section',
          { class: 'card' },
          h('h2', {}, 'What it charges for'),
          table(
            'Paid routes',
            [
              { name: 'Route', of: ({ method, path: of }) => code(`${method} ${of}`) },
              {
                name: 'USD',
                number: true,
                of: ({ price, mode }) => `${mode === 'metered' ? 'at most ' : ''}${usd(price)}`,
              },
            ],
            paidRoutes,
            '',
          ),
          facts([['Paid to', code(payTo ?? owner.split(':').pop())]]),
        ),
    ),
  ];
}

/** Browser wallets cannot sign what Tempo's keychain takes, so that the command begins it; anybody here may end it. */
function autoRenewal(auto, slug, reload) {
  if (!auto)
    return [
      h(
        'p',
        { class: 'soft' },
        'It can renew by itself before each expiry: with the wallet that owns it, run ',
        code(`turnpike renew ${slug} --auto`),
        '; or from prepaid credit, by a token that the page of your account makes.',
      ),
      form(
        {},
        [
          field(
            'Token of the account',
            h('input', { type: 'password', name: 'credit', required: true, autocomplete: 'off', spellcheck: 'false' }),
            'It begins with rnw_.',
          ),
        ],
        'Renew from credit',
        async ({ credit }) => {
          await send('PUT', `/_admin/renew/${slug}/auto`, { credit: credit.trim() });
          await reload();
          return 'It renews from credit from now on.';
        },
      ),
    ];
  const end = button('Renew by hand', undefined, async () => {
    await send('DELETE', `/_admin/renew/${slug}/auto`);
    await reload();
    return 'It is renewed by hand from now on.';
  });
  return [
    facts([
      auto.until ? ['Renews by itself until', when(auto.until)] : ['Renews by itself', 'until it is ended'],
      auto.wallet
        ? ['Each time', `${auto.amountUsd} USD, by `, code(auto.wallet)]
        : ['Each time', `at most ${auto.amountUsd} USD, from the credit of `, code(auto.account)],
      auto.lastFailure && ['The last attempt failed', auto.lastFailure],
    ]),
    h('p', { class: 'row' }, end),
  ];
}

function usd(price) {
  return typeof price === 'string' ? price : (Number(price) / 1e6).toString();
}

async function codeView({ slug, path, deployment, signal, reload }) {
  const [{ current, versions }, { updateForm }] = await Promise.all([
    get(`${path}/versions`, signal),
    later(import('./deploy.js')),
  ]);
  return [
    updateForm(slug, reload),
    h('h2', {}, 'Versions'),
    table(
      'Versions',
      [
        { name: 'Version', of: ({ version }) => [String(version), ' ', version === current && badge('live', 'good')] },
        { name: 'Made', of: ({ createdAt }) => when(createdAt) },
        { name: 'What', of: ({ note }) => note ?? '' },
        {
          name: 'By',
          of: ({ by }) => (by ? code(/^0x\w{40}$/.test(by) ? `${by.slice(0, 6)}…${by.slice(-4)}` : by) : ''),
        },
        { name: 'Size', number: true, of: (row) => bytes(row.bytes) },
        {
          name: 'While not live',
          of: ({ preview }) =>
            preview ? h('a', { href: preview.url, target: '_blank', rel: 'noreferrer' }, preview.id) : '',
        },
        {
          name: '',
          of: ({ version }) =>
            version !== current &&
            button(
              version < deployment.version ? 'Roll back' : 'Make live',
              'quiet small',
              async () => {
                if (!confirm(`Make version ${version} of ${slug} live? Secrets, settings and data stay as they are.`))
                  return;
                await send('POST', `${path}/rollback`, { version });
                await reload();
                return `Version ${version} is live.`;
              },
              { 'aria-label': `${version < deployment.version ? 'Roll back to' : 'Make live'} version ${version}` },
            ),
        },
      ],
      versions,
      'There is none.',
    ),
  ];
}

async function secretsView({ slug, path, signal, reload }) {
  const { names } = await get(`${path}/secrets`, signal);
  const change = async (secretChanges, said) => {
    await send('PUT', `/_admin/code/${slug}`, { secretChanges });
    await reload();
    return said;
  };
  return [
    table(
      'Secrets',
      [
        { name: 'Name', of: (name) => code(name) },
        {
          name: '',
          number: true,
          of: (name) =>
            button(
              'Remove',
              'quiet small',
              async () =>
                confirm(`Remove the secret ${name} of ${slug}? Its value is kept nowhere.`) &&
                change({ [name]: null }, `${name} is removed.`),
              { 'aria-label': `Remove ${name}` },
            ),
        },
      ],
      names,
      'It has no secrets.',
    ),
    form(
      { class: 'card' },
      [
        h('h2', {}, 'Set a secret'),
        field(
          'Name',
          h('input', {
            name: 'name',
            required: true,
            pattern: '[A-Za-z_][A-Za-z0-9_]{0,63}',
            autocomplete: 'off',
            spellcheck: 'false',
          }),
          'env.NAME in the handler. One that is there is replaced.',
        ),
        field(
          'Value',
          h('input', { type: 'password', name: 'value', required: true, autocomplete: 'off' }),
          'It is encrypted, and never shown again.',
        ),
      ],
      'Set',
      ({ name, value }) => change({ [name]: value }, `${name} is set.`),
    ),
  ];
}

async function domainsView({ slug, path, signal, reload }) {
  const { domains } = await get(`${path}/domains`, signal);
  return [
    form(
      { class: 'card' },
      [
        h('h2', {}, 'Attach a domain'),
        field(
          'Name',
          h('input', {
            name: 'domain',
            required: true,
            autocomplete: 'off',
            spellcheck: 'false',
            placeholder: 'api.example.com',
          }),
          'Then set the records below at your DNS provider; the host looks for them by itself.',
        ),
      ],
      'Attach',
      async ({ domain }) => {
        await send('POST', `${path}/domains`, { domain: domain.trim() });
        await reload();
        return `${domain} is attached; now set its records.`;
      },
    ),
    domains.length === 0 && h('p', { class: 'soft' }, 'It has no domain of its own.'),
    domains.map(({ domain, state, reason, dns }) =>
      h(
        'section',
        { class: 'card' },
        h(
          'div',
          { class: 'row spread' },
          h('div', { class: 'row' }, h('h2', {}, domain), badge(state, state === 'active' ? 'good' : 'warn')),
          button(
            'Detach',
            'quiet small',
            async () => {
              if (!confirm(`Detach ${domain} from ${slug}? The host stops serving it at once.`)) return;
              await ask('DELETE', `${path}/domains/${encodeURIComponent(domain)}`);
              await reload();
              return `${domain} is detached.`;
            },
            { 'aria-label': `Detach ${domain}` },
          ),
        ),
        reason && h('p', { class: 'note warn' }, reason),
        table(
          `DNS records of ${domain}`,
          [
            { name: 'Type', of: ({ type }) => type },
            { name: 'Name', of: ({ name }) => code(name) },
            { name: 'Value', of: ({ value, note }) => [code(value), note && h('span', { class: 'hint' }, note)] },
          ],
          dns,
          '',
        ),
      ),
    ),
  ];
}

async function cronsView({ path, signal }) {
  const { crons, runs } = await get(`${path}/crons`, signal);
  return [
    h(
      'p',
      {},
      crons.length === 0 ? 'It has no schedule. ' : 'It runs at ',
      crons.map((cron, index) => [index > 0 && ', ', code(cron)]),
      crons.length > 0 && ' (UTC). ',
      h('span', { class: 'soft' }, 'The manifest says it, or ', code('turnpike update --cron'), '.'),
    ),
    table(
      'Runs',
      [
        { name: 'Cron', of: ({ cron }) => code(cron) },
        { name: 'Due', of: ({ scheduledAt }) => when(scheduledAt) },
        { name: 'Began', of: ({ startedAt }) => when(startedAt) },
        {
          name: 'How it ended',
          of: ({ outcome, error }) => [
            badge(outcome ?? 'runs', outcome === 'ok' ? 'good' : outcome ? 'bad' : ''),
            error && ` ${error}`,
          ],
        },
      ],
      runs,
      'It has not run yet.',
    ),
  ];
}
