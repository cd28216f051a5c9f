// The console: who is signed in, and which view the address names (`#/s/<slug>/logs`).
import { ask, ended, get, keep, later, send, session } from './api.js';
import { button, code, daysLeft, fault, field, form, h, say, stateBadge, table, when } from './dom.js';
import { account, chooseWallet, signText, watchWallets } from './wallet.js';

const root = document.getElementById('console');
const who = document.getElementById('who')?.parentElement;
const about = root ? JSON.parse(root.dataset.about) : undefined;
/** Of the view that is shown: what it has under way ends with it. */
let current = new AbortController();

const SHORT = (address) => `${address.slice(0, 6)}…${address.slice(-4)}`;

async function show() {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  showWho();
  const parts = location.hash.replace(/^#\/?/, '').split('/').map(decoded);
  const view = !session
    ? signInView
    : parts[0] === 's' && parts[1]
      ? async (given) => (await later(import('./slug.js'))).slugView(given)
      : parts[0] === 'deploy'
        ? async (given) => (await later(import('./deploy.js'))).deployView(given)
        : listView;
  root.setAttribute('aria-busy', 'true');
  let content;
  try {
    content = await view({ about, parts, signal, reload: show });
  } catch (error) {
    if (signal.aborted) return;
    content = [h('h1', {}, 'That did not work'), fault(error), h('p', {}, h('a', { href: '#/' }, 'Your deployments'))];
  }
  if (signal.aborted) return;
  root.removeAttribute('aria-busy');
  root.replaceChildren(...[content].flat(Infinity).filter(Boolean));
  const heading = root.querySelector('h1');
  document.title = `${heading?.textContent ?? 'Console'} · Console`;
  return heading;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function showWho() {
  who.replaceChildren();
  if (!session) return;
  const out = button('Sign out', 'quiet small', async () => {
    const { token } = session;
    leave();
    await ask('DELETE', '/_admin/session', { token }).catch(() => undefined);
  });
  who.append(
    h('span', { title: session.address }, session.slug ? `${session.slug} alone` : SHORT(session.address)),
    out,
  );
}

function leave(why) {
  keep(null);
  notice = why;
  if (location.hash.length > 2) history.replaceState(null, '', location.pathname + location.hash);
  show();
}

let notice;
ended.tell = () => leave('The session is over. Sign in again; you will be where you were.');

function signInView({ signal, reload }) {
  const told = notice;
  notice = undefined;
  const status = h('p', { role: 'status' }, 'Looking for a wallet …');
  const list = h('p', { class: 'row' });
  const known = new Set();
  const unwatch = watchWallets((wallets) => {
    for (const { name, provider } of wallets) {
      if (known.has(provider)) continue;
      known.add(provider);
      list.append(button(`Sign in with ${name}`, undefined, () => signIn(provider)));
    }
    status.textContent =
      known.size > 0
        ? 'You sign a message of this host. It costs nothing.'
        : 'No wallet was found in this browser. Install one, or use a token.';
  });
  signal.addEventListener('abort', unwatch);

  async function signIn(provider) {
    status.textContent = 'Choose an account in your wallet …';
    try {
      const address = await account(provider);
      const { message, nonce } = await send('POST', '/_admin/sign-in', { address });
      status.textContent = 'Sign the message in your wallet …';
      const signature = await signText(provider, address, message);
      const { token } = await send('POST', '/_admin/session', { address, nonce, signature });
      chooseWallet(provider);
      keep({ token, address });
    } catch (error) {
      status.textContent = 'You can try again.';
      throw error;
    }
    await focused(reload());
  }

  const byToken = form(
    {},
    [
      field(
        'Token',
        h('input', { type: 'password', name: 'token', required: true, autocomplete: 'off', spellcheck: 'false' }),
        ['turnpike session <slug> prints one. It is good for that slug, and for 15 minutes.'],
      ),
    ],
    'Sign in',
    async ({ token: given }) => {
      const token = given.trim();
      const { deployments } = await (await ask('GET', '/_admin/deployments', { token })).json();
      if (deployments.length === 0) throw new Error('The token is good, but its slug is no more.');
      const address = deployments[0].owner.split(':').pop();
      keep({ token, address, slug: deployments[0].slug });
      await focused(reload());
    },
    'quiet',
  );

  return [
    h('h1', {}, 'Sign in'),
    h('p', { class: 'lead' }, 'The wallet that paid for a slug owns it. There is no account and no password.'),
    told && h('p', { class: 'note warn', role: 'alert' }, told),
    h(
      'div',
      { class: 'cards wide' },
      h('section', { class: 'card' }, h('h2', {}, 'With a wallet'), status, list),
      h('section', { class: 'card' }, h('h2', {}, 'With a token'), byToken),
    ),
    h(
      'p',
      { class: 'soft' },
      'Come here by a bookmark of your own, or by typing ',
      code(location.origin + location.pathname.replace(/^\/$/, '')),
      about.isOwn
        ? '. Your wallet shows that name, and warns where another page asks you to sign in here.'
        : '. Your wallet shows the same host name for pages of tenants, and such a page can look like this one.',
    ),
  ];
}

async function listView({ about, signal, reload }) {
  const { deployments } = await get('/_admin/deployments', signal);
  const usage = new Map();
  const first = deployments.slice(0, 40);
  await Promise.all(
    first.map(async ({ slug }) => usage.set(slug, await get(`/_admin/${slug}/usage`, signal).catch(() => undefined))),
  );
  const sum = (slug, of) => {
    const found = usage.get(slug);
    return found ? of(found) : '–';
  };
  const keys = session.slug ? [] : (await get('/_admin/keys', signal)).keys;
  return [
    h(
      'div',
      { class: 'row spread' },
      h('h1', {}, 'Your deployments'),
      !session.slug && h('a', { class: 'button', href: '#/deploy' }, `Deploy for ${about.deploy} USD`),
    ),
    about.testMoney && h('p', { class: 'note warn' }, 'Test money: what is paid on this host is worth nothing.'),
    table(
      'Your deployments',
      [
        { name: 'Slug', of: ({ slug }) => h('a', { href: `#/s/${slug}` }, slug) },
        { name: 'State', of: (row) => stateBadge(row) },
        { name: 'Version', number: true, of: ({ version }) => String(version) },
        {
          name: 'Ends',
          of: ({ expiresAt }) =>
            expiresAt
              ? h('span', {}, when(expiresAt), ' ', h('span', { class: 'soft' }, daysLeft(expiresAt)))
              : 'never',
        },
        {
          name: 'Requests, 30 days',
          number: true,
          of: ({ slug }) =>
            sum(slug, ({ days }) => days.reduce((all, day) => all + day.requests, 0).toLocaleString('en')),
        },
        {
          name: 'Revenue, 30 days',
          number: true,
          of: ({ slug }) =>
            sum(
              slug,
              ({ revenue }) =>
                `${revenue.reduce((all, row) => all + Number(row.grossUsd) - Number(row.refundedUsd), 0).toFixed(2)} USD`,
            ),
        },
      ],
      deployments,
      'This wallet owns no deployment here yet.',
    ),
    keys.length > 0 && [
      h('h2', {}, 'Deploy keys'),
      h('p', { class: 'soft' }, 'What acts for your wallet, such as CI. ', code('turnpike keys create'), ' makes one.'),
      table(
        'Deploy keys',
        [
          { name: 'Key', of: ({ id, name }) => [code(id), name ? ` ${name}` : ''] },
          { name: 'Slugs', of: ({ slugs }) => (slugs === 'all' ? 'all' : slugs.join(', ')) },
          { name: 'May', of: ({ actions }) => actions.join(', ') },
          { name: 'Used', of: ({ usedAt }) => when(usedAt) },
          { name: 'Ends', of: ({ expiresAt }) => when(expiresAt) },
          {
            name: '',
            of: ({ id, name }) =>
              button(
                'Revoke',
                'quiet small',
                async () => {
                  if (!confirm(`Revoke the key ${name ?? id}? Whoever uses it is refused at once.`)) return;
                  await ask('DELETE', `/_admin/keys/${id}`);
                  await reload();
                  return 'Revoked.';
                },
                { 'aria-label': `Revoke ${name ?? id}` },
              ),
          },
        ],
        keys,
        '',
      ),
    ],
  ];
}

/** Where a person goes to, the reading goes on at the heading. */
async function focused(shown) {
  const heading = await shown;
  if (!heading) return;
  heading.tabIndex = -1;
  heading.focus();
  say(heading.textContent);
}

if (root) {
  addEventListener('hashchange', () => focused(show()));
  show();
}
