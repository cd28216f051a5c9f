/** `/me/*`: what an account's credential may see and do: balance, statement, credentials, claiming. */

import { Hono } from 'hono';
import { formatUsd } from '../../../kit/usd.ts';
import type { Ledger } from '../credit/ledger.ts';
import { noAccount } from '../credit/purchases.ts';
import { type Statement, statement, statementCsv } from '../credit/statement.ts';
import type { Database } from '../environment.ts';
import { Problem } from '../problem.ts';
import { limit } from '../rate-limit.ts';
import type { Account, Accounts } from './accounts.ts';
import type { DeviceFlow } from './device-flow.ts';
import { authorizationOf, labelIn } from './request.ts';

const MOST_CREDENTIALS = 50;

export interface MeParts {
  db: Database;
  accounts: Accounts;
  ledger: Ledger;
  device: DeviceFlow;
  pagesUrl: string;
  /** Business time, ms. */
  now(): number;
}

/** The account of a Bearer credential. @throws Problem unauthorized */
export async function requireAccount(accounts: Accounts, authorization: string | undefined): Promise<Account> {
  const credential = authorizationOf(authorization, 'Bearer');
  const account = credential === undefined ? undefined : await accounts.byCredential(credential);
  if (account) return account;
  throw noAccount();
}

export function meApp({ db, accounts, ledger, device, pagesUrl, now }: MeParts): Hono {
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
      credentials: credentials.map(({ createdAt, lastUsedAt, ...rest }) => ({
        ...rest,
        createdAt: iso(createdAt),
        lastUsedAt: lastUsedAt === null ? null : iso(lastUsedAt),
      })),
    });
  });
  app.post('/credentials', async (c) => {
    const account = await mine(c);
    await limit(db, `credentials:${account.id}`, MOST_CREDENTIALS, 24 * 3_600_000);
    const issued = await accounts.issueCredential(account.id, await labelIn(c.req.raw, 'api'));
    return c.json({ ...issued, note: 'The credential is shown this once.' }, 201, { 'cache-control': 'no-store' });
  });
  app.delete('/credentials/:id', async (c) => {
    const account = await mine(c);
    if (!(await accounts.revoke(account.id, c.req.param('id')))) {
      throw new Problem('not_found', 'There is no such credential of this account.');
    }
    return c.body(null, 204);
  });
  app.post('/claim', async (c) => {
    const account = await mine(c);
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
