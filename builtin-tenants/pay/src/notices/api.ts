/** `/me/webhooks` and `/me/notices`: who is told what of an account. */
import { Hono } from 'hono';
import { formatUsd, parseUsd } from '../../../kit/usd.ts';
import type { OpenedAccount } from '../accounts/accounts.ts';
import { MOST } from '../catalog.ts';
import type { Database } from '../environment.ts';
import { invalidField, Problem } from '../problem.ts';
import { limit } from '../rate-limit.ts';
import type { Webhooks } from './webhooks.ts';

const ADDED_A_DAY = 50;
const TESTS_AN_HOUR = 20;
const HOUR_MS = 3_600_000;

export interface NoticesParts {
  db: Database;
  webhooks: Webhooks;
  /** The account of the caller. @throws Problem unauthorized */
  mine(request: Request): Promise<OpenedAccount>;
  /** The same, of a caller who may change it. @throws Problem forbidden */
  managed(request: Request): Promise<OpenedAccount>;
  /** Sends what is due, after the answer. */
  deliver(): void;
}

export function webhooksApp({ db, webhooks, mine, managed, deliver }: NoticesParts): Hono {
  const app = new Hono();
  app.get('/', async (c) => c.json({ webhooks: await webhooks.list((await mine(c.req.raw)).id) }));
  app.post('/', async (c) => {
    const account = await managed(c.req.raw);
    const { url } = await body(c.req.raw);
    const added = await addWebhook(db, webhooks, account.id, url);
    return c.json({ ...added, note: 'The secret is shown this once.' }, 201, { 'cache-control': 'no-store' });
  });
  app.get('/events', async (c) => c.json({ events: await webhooks.events((await mine(c.req.raw)).id) }));
  app.delete('/:id', async (c) => {
    const account = await managed(c.req.raw);
    if (!(await webhooks.remove(account.id, c.req.param('id')))) throw noWebhook();
    return c.body(null, 204);
  });
  app.post('/:id/test', async (c) => {
    const account = await managed(c.req.raw);
    const eventId = await testWebhook(db, webhooks, account.id, c.req.param('id'));
    deliver();
    return c.json({ eventId }, 202);
  });
  return app;
}

export function noticesApp({ webhooks, mine, managed }: NoticesParts): Hono {
  const app = new Hono();
  app.get('/', async (c) => c.json(await shown((await mine(c.req.raw)).id)));
  app.put('/', async (c) => {
    const account = await managed(c.req.raw);
    const { lowBalanceUsd } = await body(c.req.raw);
    await webhooks.setLowBalance(account.id, lowBalanceOf(lowBalanceUsd));
    return c.json(await shown(account.id));
  });
  async function shown(account: string) {
    const { lowBelow, isLow, isSuspended } = await webhooks.notices(account);
    return { lowBalanceUsd: lowBelow === null ? null : formatUsd(lowBelow), isLow, isSuspended };
  }
  return app;
}

/** @throws Problem invalid_field, conflict, rate_limited */
export async function addWebhook(db: Database, webhooks: Webhooks, account: string, url: unknown) {
  await limit(db, `webhooks:${account}`, ADDED_A_DAY, 24 * HOUR_MS);
  return webhooks.add(account, url);
}

/** @returns the event's id. @throws Problem not_found, rate_limited */
export async function testWebhook(db: Database, webhooks: Webhooks, account: string, id: string): Promise<string> {
  await limit(db, `webhook-tests:${account}`, TESTS_AN_HOUR, HOUR_MS);
  const event = await webhooks.test(account, id);
  if (event === undefined) throw noWebhook();
  return event;
}

/** @returns micro-USD; null: nobody asks. @throws Problem invalid_field */
export function lowBalanceOf(value: unknown): number | null {
  if (value === null || value === '') return null;
  const amount = parseUsd(value);
  if (!amount || amount > MOST)
    throw invalidField('/lowBalanceUsd', 'an amount in USD such as "2.00", or null, is expected');
  return amount;
}

function noWebhook(): Problem {
  return new Problem('not_found', 'The account has no such webhook.');
}

/** @throws Problem invalid_json */
async function body(request: Request): Promise<Record<string, unknown>> {
  const value: unknown = await request.json().catch(() => undefined);
  if (typeof value !== 'object' || value === null) throw new Problem('invalid_json', 'A JSON object is expected.');
  return value as Record<string, unknown>;
}
