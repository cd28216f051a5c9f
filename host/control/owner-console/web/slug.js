// One slug: what it is, its code, logs, secrets, usage, domains and crons.
import { ask, follow, get, send } from './api.js';
import { dataView, storesOf } from './data.js';
import { updateForm } from './deploy.js';
import {
  badge,
  button,
  bytes,
  code,
  daysLeft,
  facts,
  fault,
  field,
  form,
  h,
  s,
  save,
  stateBadge,
  table,
  when,
} from './dom.js';
import { pay } from './wallet.js';

const TABS = [
  ['', 'Overview', overview],
  ['code', 'Code', codeView],
  ['logs', 'Logs', logsView],
  ['data', 'Data', dataView],
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
  const content = await render({ ...view, slug: about.slug, path, deployment: about });
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

const link = (href) => h('a', { href, rel: 'noreferrer', target: '_blank' }, href);

async function overview({ about, deployment, slug, path, signal, reload }) {
  const { url, subdomainUrl, version, owner, expiresAt, suspended, paidRoutes, payTo, domains, runtime } = deployment;
  const usage = await get(`${path}/usage?days=30`, signal).catch(() => undefined);
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
  const stores = storesOf(deployment);
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

function usd(price) {
  return typeof price === 'string' ? price : (Number(price) / 1e6).toString();
}

function figures({ days, revenue, storage, debtUsd }) {
  const total = (of) => days.reduce((all, day) => all + (Number(day[of]) || 0), 0);
  const earned = revenue.reduce(
    (all, row) => all + Number(row.grossUsd) - Number(row.feeUsd) - Number(row.refundedUsd),
    0,
  );
  const kept = Object.values(storage ?? {}).reduce(
    (all, one) => all + (Number(one?.bytes ?? (typeof one === 'number' ? one : 0)) || 0),
    0,
  );
  const owed = Number(debtUsd) > 0;
  return h(
    'section',
    { class: 'card' },
    h(
      'dl',
      { class: 'figures' },
      h('div', {}, h('dt', {}, 'Requests, 30 days'), h('dd', {}, total('requests').toLocaleString('en'))),
      h('div', {}, h('dt', {}, 'Errors'), h('dd', {}, total('errors').toLocaleString('en'))),
      h('div', {}, h('dt', {}, 'Earned, USD'), h('dd', {}, earned.toFixed(2))),
      h('div', {}, h('dt', {}, 'Kept'), h('dd', {}, bytes(kept))),
      owed && h('div', {}, h('dt', {}, 'Owed to callers, USD'), h('dd', {}, debtUsd)),
    ),
  );
}

async function codeView({ slug, path, deployment, signal, reload }) {
  const { current, versions } = await get(`${path}/versions`, signal);
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

const MOST_LINES = 1000;

function logsView({ path, signal, slug }) {
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

async function usageView({ slug, path, signal }) {
  const usage = await get(`${path}/usage?days=30`, signal);
  const { days, revenue, storage } = usage;
  return [
    figures(usage),
    days.length > 0 && chart(days),
    h('h2', {}, 'Revenue'),
    table(
      'Revenue by day and route',
      [
        { name: 'Day', of: ({ day }) => day },
        { name: 'Route', of: ({ route }) => code(route) },
        { name: 'Payments', number: true, of: ({ payments }) => String(payments) },
        { name: 'USD', number: true, of: ({ grossUsd }) => grossUsd },
        { name: 'Fee', number: true, of: ({ feeUsd }) => feeUsd },
        { name: 'Given back', number: true, of: ({ refundedUsd }) => refundedUsd },
      ],
      [...revenue].reverse(),
      'Nothing was earned in 30 days.',
    ),
    h(
      'p',
      { class: 'row' },
      button('Payments as CSV', 'quiet small', async () => {
        const csv = await ask('GET', `${path}/usage?days=400`, { accept: 'text/csv' });
        save(await csv.blob(), `${slug}-payments.csv`);
        return 'The file is saved.';
      }),
    ),
    h('h2', {}, 'By day'),
    table(
      'Usage by day',
      Object.keys(days[0] ?? {})
        .filter((name) => typeof days[0][name] !== 'object')
        .map((name) => ({
          name: words(name),
          number: name !== 'day',
          of: (row) =>
            /bytes/i.test(name)
              ? bytes(Number(row[name]))
              : Number.isFinite(row[name])
                ? row[name].toLocaleString('en')
                : String(row[name]),
        })),
      [...days].reverse(),
      'Nobody has called it in 30 days.',
    ),
    h('h2', {}, 'Kept now'),
    facts(
      Object.entries(storage ?? {}).map(([name, value]) => [
        words(name),
        typeof value === 'object' && value !== null
          ? Object.entries(value)
              .map(([key, one]) => `${words(key)} ${/bytes/i.test(key) ? bytes(Number(one)) : one}`)
              .join(', ')
          : /bytes/i.test(name)
            ? bytes(Number(value))
            : String(value),
      ]),
    ),
  ];
}

/** `cpuMs` -> `CPU ms`. */
function words(name) {
  const text = name.replace(/([A-Z])/g, ' $1').toLowerCase();
  return (text.charAt(0).toUpperCase() + text.slice(1)).replace(/^(?:Kv|Sql|Cpu)\b/, (word) => word.toUpperCase());
}

function chart(days) {
  const WIDTH = 900;
  const HEIGHT = 160;
  const byDay = new Map(days.map((one) => [one.day, one.requests]));
  const all = Array.from({ length: 30 }, (_, index) =>
    new Date(Date.now() - (29 - index) * 86_400_000).toISOString().slice(0, 10),
  );
  const most = Math.max(1, ...byDay.values());
  const wide = WIDTH / all.length;
  const bars = all.map((day, index) => {
    const height = ((byDay.get(day) ?? 0) / most) * HEIGHT;
    return s('rect', { class: 'bar', x: index * wide + 2, y: HEIGHT - height + 20, width: wide - 4, height, rx: 2 });
  });
  const text = (x, y, anchor, value) => {
    const element = s('text', { x, y, 'text-anchor': anchor });
    element.textContent = value;
    return element;
  };
  return h(
    'section',
    { class: 'card' },
    h('h2', {}, 'Requests by day'),
    s(
      'svg',
      {
        class: 'chart',
        viewBox: `0 0 ${WIDTH} ${HEIGHT + 45}`,
        role: 'img',
        'aria-label': `Requests by day; at most ${most}`,
      },
      s('line', { class: 'grid', x1: 0, x2: WIDTH, y1: HEIGHT + 20, y2: HEIGHT + 20 }),
      s('line', { class: 'grid', x1: 0, x2: WIDTH, y1: 20, y2: 20 }),
      text(0, 14, 'start', most.toLocaleString('en')),
      ...bars,
      text(0, HEIGHT + 40, 'start', all[0]),
      text(WIDTH, HEIGHT + 40, 'end', all.at(-1)),
    ),
  );
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
