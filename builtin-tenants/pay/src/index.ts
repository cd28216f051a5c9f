/** The pay platform as a Worker: pages on their own host name, the API and the gateway on the host's. */
import { migrate } from '../../common/migrate.ts';
import { apiApp } from './api.ts';
import { MIGRATIONS } from './database/migrations.ts';
import { checkEnvironment, type Env, payUrl } from './environment.ts';
import { pagesApp } from './pages/app.ts';
import { createPlatform, type Platform, sweep } from './platform.ts';

interface ExecutionContext {
  waitUntil(work: Promise<unknown>): void;
}

export default {
  async fetch(request: Request, env: Env, context: ExecutionContext): Promise<Response> {
    checkEnvironment(env);
    await migrate(env.DB, MIGRATIONS);
    const platform = createPlatform(env, (work) => context.waitUntil(work.catch((error) => console.error(error))));
    return (isForPages(request, env) ? pages(platform) : apiApp(platform)).fetch(request);
  },

  async scheduled(_event: unknown, env: Env, context: ExecutionContext): Promise<void> {
    checkEnvironment(env);
    await migrate(env.DB, MIGRATIONS);
    await sweep(createPlatform(env, (work) => context.waitUntil(work)));
  },
};

/** The edge sets the prefix on the shared origin, where every tenant's pages could read each other. */
function isForPages(request: Request, env: Env): boolean {
  return !request.headers.has('x-forwarded-prefix') && new URL(request.url).host === new URL(env.PAGES_URL).host;
}

function pages(platform: Platform) {
  const { env, db, accounts, humans, device, ledger, now } = platform;
  return pagesApp({
    db,
    accounts,
    humans,
    device,
    ledger,
    now,
    secret: env.PAY_SECRET,
    pagesUrl: env.PAGES_URL,
    purchaseUrl: `${payUrl(env)}/deals-watches/plans/default/purchase`,
  });
}
