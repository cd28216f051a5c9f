/** The pay platform as a Worker: pages on their own host name, the API and the gateway on the host's. */
/// <reference path="../../kit/workers.d.ts" />
import { waitUntil } from 'cloudflare:workers';
import { readPlaces } from '../../kit/look/tenant.ts';
import { migrate } from '../../kit/migrate.ts';
import { welcomeTerms } from './accounts/welcome.ts';
import { apiApp } from './api.ts';
import { CREDIT } from './catalog.ts';
import { MIGRATIONS } from './database/migrations.ts';
import { checkEnvironment, type Env, payUrl } from './environment.ts';
import { paidOnPage } from './gateway/payments.ts';
import { pagesApp } from './pages/app.ts';
import { createPlatform, type Platform, sweep } from './platform.ts';
import { Problem } from './problem.ts';

const DAY_MS = 86_400_000;

interface App {
  fetch(request: Request): Response | Promise<Response>;
}

interface Opened {
  platform: Platform;
  api: App;
  pages: App;
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { api, pages } = await open(env);
    return (isForPages(request, env) ? pages : api).fetch(request);
  },

  async scheduled(_event: unknown, env: Env): Promise<void> {
    const { platform } = await open(env);
    await sweep(platform);
  },
};

const opened = new WeakMap<Env, Opened>();

/** The platform and its routes, put together once per isolate. */
async function open(env: Env): Promise<Opened> {
  const known = opened.get(env);
  if (known) return known;
  checkEnvironment(env);
  await migrate(env.DB, MIGRATIONS);
  const platform = createPlatform(env, (work) => waitUntil(work.catch((error) => console.error(error))));
  const made = { platform, api: apiApp(platform), pages: pages(platform) };
  opened.set(env, made);
  return made;
}

/** The edge sets the prefix on the shared origin, where every tenant's pages could read each other. */
function isForPages(request: Request, env: Env): boolean {
  return !request.headers.has('x-forwarded-prefix') && new URL(request.url).host === new URL(env.PAGES_URL).host;
}

function pages(platform: Platform) {
  const {
    env,
    db,
    accounts,
    catalog,
    gateway,
    humans,
    device,
    ledger,
    now,
    welcome,
    confirmation,
    passwordReset,
    purchases,
  } = platform;
  const plan = () => catalog.plan(CREDIT.service, CREDIT.plan);
  const terms = welcomeTerms(env);
  const bonus = terms && { amount: terms.amount, days: terms.real && terms.real.lifeMs / DAY_MS };
  return pagesApp({
    db,
    accounts,
    webhooks: platform.webhooks,
    deliver: platform.deliverEvents,
    topUps: platform.topUps,
    renewals: platform.renewals,
    mandateUrl: `${payUrl(env)}/me/auto-topup`,
    humans,
    device,
    ledger,
    now,
    welcome,
    confirmation,
    passwordReset,
    secret: env.PAY_SECRET,
    pagesUrl: env.PAGES_URL,
    about: async () => ({
      sold: await catalog.sold(),
      payUrl: payUrl(env),
      bonus,
      testMoney: env.PAY_NETWORK === 'local',
    }),
    places: readPlaces(env.PLACES, { name: 'Turnpike', href: env.APP_URL }),
    purchaseUrl: `${payUrl(env)}/${CREDIT.service}/plans/${CREDIT.plan}/purchase`,
    watches: {
      async prices() {
        const meters = await catalog.meters(CREDIT.service);
        const priceOf = (name: string) => meters.find(({ slug }) => slug === name)?.price;
        const [first, day] = [priceOf('watch_created'), priceOf('watch_day')];
        return first !== undefined && day !== undefined ? { first, day } : undefined;
      },
      async call(account, call, most) {
        const answer = await gateway.forAccount(account, CREDIT.service, call, most);
        if (!answer) throw new Problem('not_found', 'No watches are for sale here now.');
        return answer;
      },
    },
    topUp: {
      minimum: async () => (await plan())?.minimum,
      async buy(account, amountUsd, resource, request) {
        const bought = await plan();
        if (!bought) throw new Problem('not_found', 'No credit is for sale here now.');
        const headers = paidOnPage(request, resource) ?? request.headers;
        const work = purchases.purchase(bought, account, amountUsd, resource, new Request(request, { headers }));
        platform.waitUntil(work.catch(() => undefined));
        const answer = await work;
        if (answer.status === 201) platform.deliverEvents();
        return answer;
      },
    },
  });
}
