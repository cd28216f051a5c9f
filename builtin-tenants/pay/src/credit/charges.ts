/** `/internal/*`: what origins may do with credit, with their service key. See README.md. */
import { Hono } from 'hono';
import type { Accounts } from '../accounts/accounts.ts';
import { sameText, sha256Hex } from '../accounts/tokens.ts';
import { type Catalog, type Price, parseUsage, SLUG } from '../catalog.ts';
import type { Database } from '../environment.ts';
import { invalidField, Problem } from '../problem.ts';
import type { ChargeOutcome, Ledger, Movement } from './ledger.ts';

const MOST_CHARGES = 200;
const KEY = /^[\x21-\x7e]{1,200}$/;

export interface ChargeParts {
  db: Database;
  accounts: Accounts;
  catalog: Catalog;
  ledger: Ledger;
  /** The key that the host gave to the built-in origins. */
  hostKey: string;
  /** Services that the host's key may charge for. */
  hostServices: readonly string[];
  /** What is to follow: credit has become less, or did not cover work that nobody waits for. */
  charged(charges: readonly { account: string; amount: number; isCovered: boolean }[]): Promise<void>;
}

interface ChargeResult {
  key: string;
  status: 'charged' | 'duplicate' | 'insufficient_credit' | 'not_found' | 'conflict' | 'invalid';
  chargeId?: string;
  amountMicroUsd?: string;
  balanceMicroUsd?: string;
  detail?: string;
}

export function internalApp(parts: ChargeParts): Hono {
  const app = new Hono();
  app.post('/charges', async (c) => {
    const services = await authorize(parts, c.req.header('authorization'));
    const [result] = await chargeAll(parts, services, [await c.req.json().catch(() => undefined)]);
    if (!result) throw new Error('no result');
    const { key: _key, ...body } = result;
    if (result.status === 'charged') return c.json(body, 201);
    if (result.status === 'duplicate') return c.json(body, 200);
    throw asProblem(result);
  });
  app.post('/charges/batch', async (c) => {
    const services = await authorize(parts, c.req.header('authorization'));
    const body = (await c.req.json().catch(() => undefined)) as { charges?: unknown } | undefined;
    const charges = body?.charges;
    if (!Array.isArray(charges) || charges.length === 0 || charges.length > MOST_CHARGES) {
      throw invalidField('/charges', `1 to ${MOST_CHARGES} charges are expected`);
    }
    const results = await chargeAll(parts, services, charges);
    return c.json({ results });
  });
  app.get('/charges/:key', async (c) => {
    const services = await authorize(parts, c.req.header('authorization'));
    const service = c.req.query('serviceSlug') ?? '';
    if (!services.includes(service)) throw invalidField('/serviceSlug', 'this key is for other services');
    const charge = await parts.db
      .prepare('SELECT id, account, amount, at FROM ledger_transactions WHERE key = ?')
      .bind(`charge:${service}:${c.req.param('key')}`)
      .first<{ id: string; account: string; amount: number; at: number }>();
    if (!charge) throw new Problem('not_found', 'The key is unused.');
    const { id, account, amount, at } = charge;
    return c.json({
      chargeId: id,
      accountId: account,
      amountMicroUsd: String(amount),
      at: new Date(at).toISOString(),
    });
  });
  app.get('/accounts/:id', async (c) => {
    await authorize(parts, c.req.header('authorization'));
    const account = await parts.accounts.find(c.req.param('id'));
    if (!account) throw new Problem('not_found', 'There is no such account.');
    const credentials = await parts.accounts.credentials(account.id);
    return c.json({
      accountId: account.id,
      kind: account.kind,
      balanceMicroUsd: String(await parts.ledger.available(account.id)),
      credentials: credentials.length,
    });
  });
  app.get('/meters', async (c) => {
    await authorize(parts, c.req.header('authorization'));
    const meters = await parts.catalog.meters(c.req.query('serviceSlug') ?? '');
    return c.json({
      meters: meters.map(({ service, slug, price, creditOnly }) => ({
        serviceSlug: service,
        meterSlug: slug,
        priceMicroUsd: String(price),
        creditOnly,
      })),
    });
  });
  return app;
}

/** The services that the key may charge for. @throws Problem unauthorized */
async function authorize(parts: ChargeParts, authorization: string | undefined): Promise<readonly string[]> {
  const key = /^Bearer\s+(\S+)$/i.exec(authorization ?? '')?.[1] ?? '';
  if (sameText(await sha256Hex(key), await sha256Hex(parts.hostKey))) return parts.hostServices;
  const { results } = await parts.db
    .prepare('SELECT service FROM service_keys WHERE hash = ?')
    .bind(await sha256Hex(key))
    .all<{ service: string }>();
  if (results.length === 0) throw new Problem('unauthorized', 'A service key is needed: Authorization: Bearer <key>.');
  return results.map(({ service }) => service);
}

type Checked = { movement: Movement; key: string } | { refused: ChargeResult };

async function chargeAll(
  parts: ChargeParts,
  services: readonly string[],
  inputs: readonly unknown[],
): Promise<ChargeResult[]> {
  const prices = new Map<string, Price | undefined>();
  const checked: Checked[] = [];
  for (const input of inputs) checked.push(await check(parts.catalog, services, input, prices));
  const movements = checked.flatMap((one) => ('movement' in one ? [one.movement] : []));
  const outcomes = await parts.ledger.chargeAll(movements);
  await parts.charged(
    movements.map(({ account, amount }, index) => ({
      account,
      amount,
      isCovered: outcomes[index]?.status !== 'insufficient_credit',
    })),
  );
  return checked.map((one) => {
    if ('refused' in one) return one.refused;
    const outcome = outcomes[movements.indexOf(one.movement)];
    if (!outcome) throw new Error('a charge without an outcome');
    return resultOf(one.key, one.movement.amount, outcome);
  });
}

/** The boundary: what an origin sent becomes a movement, or a result that says why not. */
async function check(
  catalog: Catalog,
  services: readonly string[],
  input: unknown,
  prices: Map<string, Price | undefined>,
): Promise<Checked> {
  const { key, accountId, serviceSlug, usage, memo } = (input ?? {}) as Record<string, unknown>;
  const named = typeof key === 'string' ? key.slice(0, 200) : '';
  const refuse = (detail: string): Checked => ({ refused: { key: named, status: 'invalid', detail } });
  if (typeof key !== 'string' || !KEY.test(key)) return refuse('key: 1 to 200 visible ASCII characters are expected');
  if (typeof accountId !== 'string') return refuse('accountId: the id of an account is expected');
  if (typeof serviceSlug !== 'string' || !SLUG.test(serviceSlug)) return refuse('serviceSlug: a service is expected');
  if (memo !== undefined && (typeof memo !== 'string' || memo.length > 200)) {
    return refuse('memo: a text of at most 200 characters is expected');
  }
  const lines = parseUsage(usage);
  if (!lines) return refuse('usage: [{"meterSlug","quantity"}] is expected');
  if (!services.includes(serviceSlug)) return refuse('serviceSlug: this key is for other services');
  const text = JSON.stringify(lines);
  const what = `${serviceSlug} ${text}`;
  if (!prices.has(what)) prices.set(what, await catalog.price(serviceSlug, lines));
  const price = prices.get(what);
  if (!price) return { refused: { key, status: 'not_found', detail: 'There is no such service or meter.' } };
  return {
    key,
    movement: {
      // Keys of different services never meet.
      key: `charge:${serviceSlug}:${key}`,
      account: accountId,
      service: serviceSlug,
      amount: price.amount,
      usage: text,
      requestId: key,
      memo: memo ?? price.description,
    },
  };
}

function resultOf(key: string, amount: number, outcome: ChargeOutcome): ChargeResult {
  const amountMicroUsd = String(amount);
  switch (outcome.status) {
    case 'charged':
    case 'duplicate': {
      const { status, id, balance } = outcome;
      return { key, status, chargeId: id, amountMicroUsd, balanceMicroUsd: String(balance) };
    }
    case 'insufficient_credit':
      return { key, status: 'insufficient_credit', amountMicroUsd, balanceMicroUsd: String(outcome.balance) };
    case 'no_account':
      return { key, status: 'not_found', detail: 'There is no such account.' };
    case 'conflict':
      return { key, status: 'conflict', detail: 'The key was used for another charge.' };
  }
}

function asProblem({ status, detail, amountMicroUsd, balanceMicroUsd }: ChargeResult): Problem {
  if (status === 'insufficient_credit') {
    return new Problem('insufficient_credit', 'The credit does not cover this charge; the key is unused.', {
      priceMicroUsd: amountMicroUsd,
      balanceMicroUsd,
    });
  }
  if (status === 'not_found')
    return new Problem('not_found', detail ?? 'There is nothing by that id; check the ids in the request.');
  if (status === 'conflict') return new Problem('conflict', detail ?? 'The key was used.');
  return new Problem('invalid_field', detail ?? 'A field is not acceptable.');
}
