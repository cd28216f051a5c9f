/** `/me/*`: what an account's credential may see and do: balance, statement, credentials, claiming. */

import { Hono } from 'hono';
import { formatUsd, parseUsd } from '../../../kit/usd.ts';
import { MOST } from '../catalog.ts';
import type { Disputes } from '../credit/disputes.ts';
import type { Ledger } from '../credit/ledger.ts';
import { noAccount } from '../credit/purchases.ts';
import type { Renewals } from '../credit/renewals.ts';
import { accountRenewalsApp } from '../credit/renewals-api.ts';
import { type Statement, statement, statementCsv } from '../credit/statement.ts';
import type { Database } from '../environment.ts';
import { noticesApp, webhooksApp } from '../notices/api.ts';
import type { Webhooks } from '../notices/webhooks.ts';
import { invalidField, Problem } from '../problem.ts';
import { limit } from '../rate-limit.ts';
import { autoTopUpApp } from '../topup/api.ts';
import type { AutoTopUp } from '../topup/auto-topup.ts';
import type { Account, Accounts, OpenedAccount } from './accounts.ts';
import type { DeviceFlow } from './device-flow.ts';
import { authorizationOf } from './request.ts';

const MOST_CREDENTIALS = 50;
const MOST_DISPUTES = 50;

export interface MeParts {
  db: Database;
  accounts: Accounts;
  ledger: Ledger;
  device: DeviceFlow;
  disputes: Disputes;
  webhooks: Webhooks;
  renewals: Renewals;
  topUps: AutoTopUp;
  /** Tops up who is low, after the answer. */
  topUp(account: string): void;
  pagesUrl: string;
  /** Business time, ms. */
  now(): number;
  /** Sends what is due, after the answer. */
  deliver(): void;
}

/** The account of a Bearer credential. @throws Problem unauthorized */
export async function requireAccount(accounts: Accounts, authorization: string | undefined): Promise<OpenedAccount> {
  const credential = authorizationOf(authorization, 'Bearer');
  const account = credential === undefined ? undefined : await accounts.byCredential(credential);
  if (account) return account;
  throw noAccount();
}

export function meApp(parts: MeParts): Hono {
  const { db, accounts, ledger, device, disputes, webhooks, pagesUrl, now, deliver } = parts;
  const app = new Hono();
  const mine = (c: { req: { header(name: string): string | undefined } }) =>
    requireAccount(accounts, c.req.header('authorization'));

  app.get('/', async (c) => {
    const account = await mine(c);
    const before = cursor(c.req.query('before'));
    if (c.req.query('format') === 'csv') return statementCsv(db, account.id, { before });
    const listed = await statement(db, account.id, { limit: 1_000, before });
    return c.json({ ...(await overview(db, ledger, account, now())), ...listed } satisfies Statement & object);
  });
  app.get('/credentials', async (c) => {
    const account = await mine(c);
    const credentials = await accounts.credentials(account.id);
    return c.json({
      credentials: credentials.map(({ createdAt, lastUsedAt, dailyCap, spentToday, ...rest }) => ({
        ...rest,
        dailyCapUsd: dailyCap === null ? null : formatUsd(dailyCap),
        ...(dailyCap === null ? {} : { spentTodayUsd: formatUsd(spentToday) }),
        createdAt: iso(createdAt),
        lastUsedAt: lastUsedAt === null ? null : iso(lastUsedAt),
      })),
    });
  });
  app.post('/credentials', async (c) => {
    const account = uncapped(await mine(c));
    await limit(db, `credentials:${account.id}`, MOST_CREDENTIALS, 24 * 3_600_000);
    const { label, dailyCapUsd } = await newCredential(c.req.raw);
    const issued = await accounts.issueCredential(account.id, label ?? 'api', capOf(dailyCapUsd));
    return c.json({ ...issued, note: 'The credential is shown this once.' }, 201, { 'cache-control': 'no-store' });
  });
  app.put('/credentials/:id', async (c) => {
    const account = uncapped(await mine(c));
    const { dailyCapUsd } = await newCredential(c.req.raw);
    if (dailyCapUsd === undefined) throw invalidField('/dailyCapUsd', 'an amount such as "2.00", or null, is expected');
    if (!(await accounts.cap(account.id, c.req.param('id'), capOf(dailyCapUsd)))) throw noCredential();
    return c.body(null, 204);
  });
  app.delete('/credentials/:id', async (c) => {
    const account = uncapped(await mine(c), c.req.param('id'));
    if (!(await accounts.revoke(account.id, c.req.param('id')))) throw noCredential();
    return c.body(null, 204);
  });
  app.get('/disputes', async (c) => c.json({ disputes: await disputes.list((await mine(c)).id) }));
  app.post('/disputes', async (c) => {
    const account = await mine(c);
    await limit(db, `disputes:${account.id}`, MOST_DISPUTES, 24 * 3_600_000);
    await disputes.open(account.id, ((await c.req.json().catch(() => null)) ?? {}) as object);
    return c.body(null, 204);
  });
  const byHeader = (request: Request) => requireAccount(accounts, request.headers.get('authorization') ?? undefined);
  const notices = {
    db,
    webhooks,
    mine: byHeader,
    managed: async (request: Request) => uncapped(await byHeader(request)),
  };
  app.route('/webhooks', webhooksApp({ ...notices, deliver }));
  app.route('/notices', noticesApp({ ...notices, deliver }));
  app.route('/renewals', accountRenewalsApp({ ...notices, renewals: parts.renewals }));
  app.route('/auto-topup', autoTopUpApp({ ...notices, topUps: parts.topUps, topUp: parts.topUp }));
  app.post('/claim', async (c) => {
    const account = uncapped(await mine(c));
    if (account.humanId !== null) throw new Problem('conflict', 'This account has an owner already.');
    await limit(db, `claim:${account.id}`, 10, 3_600_000);
    const code = await device.begin('an agent', account.id);
    return c.json({
      user_code: code.userCode,
      verification_uri: `${pagesUrl}/device`,
      verification_uri_complete: `${pagesUrl}/device?user_code=${code.userCode}`,
      expires_in: code.expiresInSeconds,
    });
  });
  return app;
}

function noCredential(): Problem {
  return new Problem('not_found', 'There is no such credential of this account.');
}

/**
 * A credential with a cap cannot get around it: it makes, changes and gives away nothing.
 * @param itself a credential that it may do it to: itself
 * @throws Problem forbidden
 */
function uncapped(account: OpenedAccount, itself?: string): OpenedAccount {
  if (account.dailyCap === null || account.credentialId === itself) return account;
  throw new Problem(
    'forbidden',
    'This credential may spend a certain amount a day, and manage nothing; use one without a cap, or the account’s page.',
  );
}

async function newCredential(request: Request): Promise<{ label?: string; dailyCapUsd?: unknown }> {
  const text = await request.text();
  if (text.trim() === '') return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Problem('invalid_json', 'The body is not JSON.');
  }
  const { label, dailyCapUsd } = (value ?? {}) as { label?: unknown; dailyCapUsd?: unknown };
  if (label !== undefined && (typeof label !== 'string' || label.length > 100))
    throw invalidField('/label', 'a text of at most 100 characters is expected');
  return { ...(label === undefined ? {} : { label }), dailyCapUsd };
}

/** @returns micro-USD; null: no cap. @throws Problem invalid_field */
export function capOf(value: unknown): number | null {
  if (value === undefined || value === null || value === '') return null;
  const amount = parseUsd(value);
  if (!amount || amount > MOST) throw invalidField('/dailyCapUsd', 'an amount in USD such as "2.00" is expected');
  return amount;
}

/** Balance by grant, held credit, and how long it lasts at the pace of the last seven days. */
export async function overview(db: Database, ledger: Ledger, account: Account, now: number) {
  const [grants, held, spent] = [
    await ledger.grants(account.id),
    await ledger.held(account.id),
    await spentSince(db, account.id, now - 7 * 86_400_000),
  ];
  const balance = grants.reduce((sum, grant) => sum + grant.balance, 0);
  return {
    accountId: account.id,
    kind: account.kind,
    claimed: account.humanId !== null,
    balanceUsd: formatUsd(balance),
    balanceMicroUsd: String(balance),
    heldUsd: formatUsd(held),
    runwayDays: spent === 0 ? null : Math.floor((balance * 7) / spent),
    grants: grants.map((grant) => ({
      id: grant.id,
      source: grant.source,
      promotional: grant.promotional,
      amountUsd: formatUsd(grant.amount),
      balanceUsd: formatUsd(grant.balance),
      expiresAt: grant.expiresAt === null ? null : iso(grant.expiresAt),
      createdAt: iso(grant.createdAt),
    })),
  };
}

async function spentSince(db: Database, account: string, since: number): Promise<number> {
  const row = await db
    .prepare(
      `SELECT coalesce(sum(amount), 0) AS spent FROM ledger_transactions
       WHERE account = ? AND kind IN ('charge', 'capture') AND at >= ?`,
    )
    .bind(account, since)
    .first<{ spent: number }>();
  return row?.spent ?? 0;
}

function cursor(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
