/** Renewals from credit: `/me/renewals` for accounts, `/operator/renewals` for the host. */
import { Hono } from 'hono';
import { formatUsd } from '../../../kit/usd.ts';
import type { OpenedAccount } from '../accounts/accounts.ts';
import type { Database } from '../environment.ts';
import { Problem } from '../problem.ts';
import { limit } from '../rate-limit.ts';
import type { Renewals } from './renewals.ts';

const ADDED_A_DAY = 50;
const DAY_MS = 86_400_000;

export interface AccountRenewalsParts {
  db: Database;
  renewals: Renewals;
  /** The account of the caller. @throws Problem unauthorized */
  mine(request: Request): Promise<OpenedAccount>;
  /** The same, of a caller who may change it. @throws Problem forbidden */
  managed(request: Request): Promise<OpenedAccount>;
}

export function accountRenewalsApp({ db, renewals, mine, managed }: AccountRenewalsParts): Hono {
  const app = new Hono();
  app.get('/', async (c) => c.json({ renewals: await renewals.list((await mine(c.req.raw)).id) }));
  app.post('/', async (c) => {
    const account = await managed(c.req.raw);
    await limit(db, `renewals:${account.id}`, ADDED_A_DAY, DAY_MS);
    const added = await renewals.add(account.id, await objectOf(c.req.raw));
    const note = 'The token is shown this once; the deployment’s owner gives it to the host.';
    return c.json({ ...added, note }, 201, { 'cache-control': 'no-store' });
  });
  app.delete('/:slug', async (c) => {
    if (!(await renewals.end((await managed(c.req.raw)).id, c.req.param('slug'))))
      throw new Problem('not_found', 'The account renews no deployment of that name.');
    return c.body(null, 204);
  });
  return app;
}

export function hostRenewalsApp(renewals: Renewals): Hono {
  const app = new Hono();
  app.post('/check', async (c) => {
    const { token, slug } = await objectOf(c.req.raw);
    const found = await renewals.find(token, slug);
    if (!found) throw new Problem('not_found', 'The token is unknown, ended, or of another deployment.');
    return c.json({ accountId: found.account, mostUsd: formatUsd(found.most) });
  });
  app.post('/charges', async (c) => c.json({ outcome: await renewals.charge(await objectOf(c.req.raw)) }));
  app.get('/charges/:key', async (c) => c.json({ outcome: await renewals.outcome(c.req.param('key')) }));
  app.post('/charges/:key/refund', async (c) => c.json({ refunded: await renewals.giveBack(c.req.param('key')) }));
  return app;
}

async function objectOf(request: Request): Promise<Record<string, unknown>> {
  const value: unknown = await request.json().catch(() => undefined);
  if (typeof value !== 'object' || value === null) throw new Problem('invalid_json', 'A JSON object is expected.');
  return value as Record<string, unknown>;
}
