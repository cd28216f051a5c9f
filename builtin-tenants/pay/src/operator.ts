/** `/operator/*`: services, meters, plans, service keys and grants, changed by the operator with its key. */
import { Hono } from 'hono';
import { formatUsd, parseUsd } from '../../kit/usd.ts';
import type { PasswordReset } from './accounts/password-reset.ts';
import { newId, newSecret, sameText, sha256Hex } from './accounts/tokens.ts';
import { type Catalog, CREDIT, MOST, SLUG } from './catalog.ts';
import type { Disputes } from './credit/disputes.ts';
import type { Ledger } from './credit/ledger.ts';
import type { OriginEvents } from './credit/origin-events.ts';
import type { Renewals } from './credit/renewals.ts';
import { hostRenewalsApp } from './credit/renewals-api.ts';
import type { Database } from './environment.ts';
import { invalidField, Problem } from './problem.ts';

export interface OperatorParts {
  db: Database;
  catalog: Catalog;
  ledger: Ledger;
  passwordReset: PasswordReset;
  disputes: Disputes;
  events: OriginEvents;
  renewals: Renewals;
  operatorKey: string;
  /** Business time, ms. */
  now(): number;
  /** Sends what is due to origins, after the answer. */
  deliver(): void;
}

/** First path segments that are the platform's own. */
export const OWN_SEGMENTS = [
  '',
  '.well-known',
  'accounts',
  'agent',
  'assets',
  'auth.md',
  'dashboard',
  'device',
  'docs',
  'favicon.ico',
  'healthz',
  'internal',
  'llms.txt',
  'me',
  'oauth',
  'openapi.json',
  'operator',
  'reset',
  'robots.txt',
  'sign-in',
  'sign-out',
  'sign-up',
];

export function operatorApp(parts: OperatorParts): Hono {
  const { db, catalog, ledger } = parts;
  const app = new Hono();
  app.use(async function requireOperator(c, next) {
    const key = /^Bearer\s+(\S+)$/i.exec(c.req.header('authorization') ?? '')?.[1] ?? '';
    if (!sameText(await sha256Hex(key), await sha256Hex(parts.operatorKey))) {
      throw new Problem('unauthorized', 'The operator key of the pay platform is needed: Authorization: Bearer <key>.');
    }
    await next();
  });

  app.get('/services', async (c) => {
    const { results } = await db
      .prepare('SELECT slug, origin, name, credit_service AS creditService, enabled FROM services ORDER BY slug')
      .all<{ slug: string; enabled: number }>();
    const services = [];
    for (const row of results) {
      const meters = (await catalog.meters(row.slug)).map(({ price, service: _service, ...meter }) => ({
        ...meter,
        priceUsd: formatUsd(price),
      }));
      const plans = (await catalog.plans(row.slug)).map(({ minimum, service: _service, ...plan }) => ({
        ...plan,
        minimumUsd: formatUsd(minimum),
      }));
      services.push({ ...row, enabled: row.enabled === 1, meters, plans });
    }
    return c.json({ services });
  });

  app.post('/reset-links', async (c) => {
    const { email } = await body(c.req.raw);
    const { url, expiresAt } = await parts.passwordReset.link(text(email, '/email') ?? '');
    return c.json({ url, expiresAt: new Date(expiresAt).toISOString() }, 201);
  });

  app.put('/services/:slug', async (c) => {
    const slug = slugOf(c.req.param('slug'));
    if (OWN_SEGMENTS.includes(slug)) throw invalidField('/slug', 'this name is the platform’s own');
    const { origin, name, creditService, enabled } = await body(c.req.raw);
    if (typeof origin !== 'string' || !isOrigin(origin)) {
      throw invalidField('/origin', 'an http(s) address without query, or one that begins with {app_url}, is expected');
    }
    await db
      .prepare(
        `INSERT INTO services (slug, origin, name, credit_service, enabled, updated_at) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (slug) DO UPDATE SET origin = excluded.origin, name = excluded.name,
           credit_service = excluded.credit_service, enabled = excluded.enabled, updated_at = excluded.updated_at`,
      )
      .bind(
        slug,
        origin.replace(/\/$/, ''),
        text(name, '/name') ?? slug,
        text(creditService, '/creditService') ?? slug,
        enabled === false ? 0 : 1,
        Date.now(),
      )
      .run();
    return c.json({ slug }, 200);
  });

  app.put('/services/:slug/meters/:meter', async (c) => {
    const [service, slug] = [slugOf(c.req.param('slug')), slugOf(c.req.param('meter'))];
    await existing(catalog, service);
    const { priceUsd, creditOnly, description } = await body(c.req.raw);
    await db
      .prepare(
        `INSERT INTO meters (service, slug, price, credit_only, description, updated_at) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (service, slug) DO UPDATE SET price = excluded.price, credit_only = excluded.credit_only,
           description = excluded.description, updated_at = excluded.updated_at`,
      )
      .bind(
        service,
        slug,
        usd(priceUsd, '/priceUsd'),
        creditOnly ? 1 : 0,
        text(description, '/description') ?? slug,
        Date.now(),
      )
      .run();
    return c.json({ service, slug });
  });

  app.delete('/services/:slug/meters/:meter', async (c) => {
    const { meta } = await db
      .prepare('DELETE FROM meters WHERE service = ? AND slug = ?')
      .bind(c.req.param('slug'), c.req.param('meter'))
      .run();
    if (meta.changes !== 1) throw new Problem('not_found', 'There is no such meter.');
    return c.body(null, 204);
  });

  app.put('/services/:slug/plans/:plan', async (c) => {
    const [service, id] = [slugOf(c.req.param('slug')), slugOf(c.req.param('plan'))];
    await existing(catalog, service);
    const { name, minimumUsd, expiresAfterDays, enabled } = await body(c.req.raw);
    if (expiresAfterDays !== undefined && (!Number.isSafeInteger(expiresAfterDays) || Number(expiresAfterDays) < 1)) {
      throw invalidField('/expiresAfterDays', 'a whole number of days is expected');
    }
    await db
      .prepare(
        `INSERT INTO plans (service, id, name, minimum, expires_after_days, enabled) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (service, id) DO UPDATE SET name = excluded.name, minimum = excluded.minimum,
           expires_after_days = excluded.expires_after_days, enabled = excluded.enabled`,
      )
      .bind(
        service,
        id,
        text(name, '/name') ?? id,
        usd(minimumUsd, '/minimumUsd'),
        expiresAfterDays === undefined ? null : Number(expiresAfterDays),
        enabled === false ? 0 : 1,
      )
      .run();
    return c.json({ service, id });
  });

  app.post('/services/:slug/keys', async (c) => {
    const service = slugOf(c.req.param('slug'));
    await existing(catalog, service);
    const key = newSecret('tpo');
    await db
      .prepare('INSERT INTO service_keys (hash, service, created_at) VALUES (?, ?, ?)')
      .bind(await sha256Hex(key), service, Date.now())
      .run();
    return c.json({ service, key, note: 'The key is shown this once.' }, 201, { 'cache-control': 'no-store' });
  });

  app.post('/grants', async (c) => {
    const { accountId, amountUsd, promotional, expiresAt, priority, key, memo, service } = await body(c.req.raw);
    const account = text(accountId, '/accountId') ?? '';
    const exists = await db.prepare('SELECT 1 FROM accounts WHERE id = ?').bind(account).first();
    if (!exists) throw new Problem('not_found', 'There is no such account.');
    const until = expiresAt === undefined ? null : Date.parse(text(expiresAt, '/expiresAt') ?? '');
    if (until !== null && !Number.isFinite(until)) throw invalidField('/expiresAt', 'an ISO 8601 time is expected');
    // The event is written in the transaction that books the credit, so that a kill cannot separate them.
    const told = parts.events.creditGranted(text(service, '/service') ?? CREDIT.service, account, parts.now());
    const granted = await ledger.grant(
      {
        key: `operator:${text(key, '/key') ?? newId('key')}`,
        account,
        amount: usd(amountUsd, '/amountUsd'),
        source: 'operator',
        promotional: promotional !== false,
        expiresAt: until,
        ...(Number.isSafeInteger(priority) ? { priority: Number(priority) } : {}),
        memo: text(memo, '/memo') ?? 'Granted by the operator',
      },
      [told],
    );
    if (granted) parts.deliver();
    return c.json({ granted, balanceUsd: formatUsd(await ledger.available(account)) }, granted ? 201 : 200);
  });

  app.route('/renewals', hostRenewalsApp(parts.renewals));
  app.get('/disputes', async (c) => c.json({ disputes: await parts.disputes.list() }));
  app.post('/disputes/refuse', async (c) => {
    const { accountId, requestId, note } = await body(c.req.raw);
    await parts.disputes.refuse(
      needed(accountId, '/accountId'),
      needed(requestId, '/requestId'),
      needed(note, '/note'),
    );
    return c.json({ refused: true });
  });
  app.post('/refunds', async (c) => {
    const { accountId, requestId, note, service } = await body(c.req.raw);
    const account = needed(accountId, '/accountId');
    const told = parts.events.creditGranted(text(service, '/service') ?? 'deals-watches', account, parts.now());
    const reason = needed(note, '/note');
    const { refunded, amount } = await parts.disputes.refund(account, needed(requestId, '/requestId'), reason, told);
    if (refunded) parts.deliver();
    const balance = await ledger.available(account);
    const about = { refunded, amountUsd: formatUsd(amount), balanceUsd: formatUsd(balance) };
    return c.json(about, refunded ? 201 : 200);
  });

  app.get('/ledger', async (c) => {
    const sums = await db
      .prepare(
        `SELECT (SELECT coalesce(sum(balance), 0) FROM ledger_accounts) AS total,
           (SELECT count(*) FROM ledger_accounts a WHERE a.balance <>
             (SELECT coalesce(sum(amount), 0) FROM ledger_entries e WHERE e.account_id = a.id)) AS drifted`,
      )
      .first<{ total: number; drifted: number }>();
    const { results } = await db
      .prepare(
        `SELECT CASE WHEN id LIKE 'grant:%' THEN 'credit of accounts' WHEN id LIKE 'hold:%' THEN 'held' ELSE id END AS name,
           sum(balance) AS balance FROM ledger_accounts GROUP BY 1 ORDER BY 1`,
      )
      .all<{ name: string; balance: number }>();
    return c.json({
      ok: sums?.total === 0 && sums.drifted === 0,
      totalMicroUsd: String(sums?.total ?? 0),
      accountsThatDrifted: sums?.drifted ?? 0,
      balances: Object.fromEntries(results.map(({ name, balance }) => [name, formatUsd(balance)])),
    });
  });
  return app;
}

function slugOf(value: string): string {
  if (!SLUG.test(value)) throw invalidField('/slug', 'lowercase letters, digits, - and _ are expected');
  return value;
}

async function existing(catalog: Catalog, service: string): Promise<void> {
  if (!(await catalog.service(service))) throw new Problem('not_found', 'There is no such service.');
}

async function body(request: Request): Promise<Record<string, unknown>> {
  const value: unknown = await request.json().catch(() => undefined);
  if (typeof value !== 'object' || value === null) throw new Problem('invalid_json', 'A JSON object is expected.');
  return value as Record<string, unknown>;
}

function text(value: unknown, pointer: string): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'string' || value === '' || value.length > 300)
    throw invalidField(pointer, 'a text is expected');
  return value;
}

function needed(value: unknown, pointer: string): string {
  const given = text(value, pointer);
  if (given === undefined) throw invalidField(pointer, 'a text is expected');
  return given;
}

function usd(value: unknown, pointer: string): number {
  const amount = parseUsd(value);
  if (!amount || amount > MOST) throw invalidField(pointer, 'an amount in USD such as "0.15" is expected');
  return amount;
}

function isOrigin(text: string): boolean {
  const whole = text.replace(/^\{app_url\}(?=\/|$)/, 'https://host.example');
  return URL.canParse(whole) && /^https?:$/.test(new URL(whole).protocol) && !/[?#{}]/.test(whole);
}
