/**
 * `env.PAYMENTS`: prices that are known at run time only. One unix socket per tenant, so who calls is known by where
 * it calls: a tenant can challenge, verify and capture in its own name and in nobody else's.
 */
import { createHash, randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import { z } from 'zod';
import { prefersHtml } from '../../builtin-tenants/kit/prefers-html.ts';
import type { PaymentRow } from '../registry/payments/schema.ts';
import { BACKLOG } from '../shared/backlog.ts';
import { formatUsd, type Money, micro, parseUsd } from '../shared/money.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import { readBody, releasingBodies } from '../shared/request-body.ts';
import type { Challenger } from './challenge.ts';
import { discoveryOf, inputSchema, outputSchema } from './discovery.ts';
import { mandateRoutes, type SealedMandate } from './mandate-service.ts';
import { methodOf, readCredential } from './methods/index.ts';
import type { Presented } from './methods/method.ts';
import type { ProofVerifier } from './methods/tempo/proof.ts';
import type { OfferBook } from './offers.ts';
import { readIdempotencyKey } from './request.ts';
import { Sealed } from './sealed.ts';
import { placeOf } from './settlement/again.ts';
import type { LiveCalls } from './settlement/live-calls.ts';
import type { SettlementMachine } from './settlement/machine.ts';
import { receiptHeaders } from './settlement/receipts.ts';
import type { Terms } from './terms.ts';
import type { Address, Mandates, PaymentBindings } from './types.ts';

const usd = z
  .string()
  .regex(/^\d{1,6}(\.\d{1,6})?$/, 'is an amount in USD such as "0.05"')
  .transform((text) => parseUsd(text))
  .refine((amount) => amount > 0n, 'is more than 0');

/** What challenges of payments and of mandates have in common. */
const fields = {
  usd,
  description: z.string().max(300).optional(),
  /** Comes back at /verify, authenticated. */
  metadata: z.record(z.string().regex(/^[\w.-]{1,40}$/), z.string().max(400)).optional(),
  /** Whatever the payment is for, such as a digest of the request; must be given again at /verify. */
  bind: z.string().max(400).optional(),
};
const challengeBody = z.strictObject({
  amount: usd,
  description: fields.description,
  metadata: fields.metadata,
  bind: fields.bind,
  /** URL as the caller sees it. */
  resource: z.url().max(2048).optional(),
  /** The caller's `Accept`: a browser gets a page that its wallet can pay. */
  accept: z.string().max(1_000).optional().catch(undefined),
  /** Whether programs can call the same address; the page says how. */
  programs: z.boolean().default(true),
  /** Also offers x402 v1. `/verify` then takes `x402v1`, `amount` and `bind`, because such payments do not carry them. */
  x402v1: z.boolean().default(false),
  /** Why what the caller sent pays for nothing. */
  refused: z.string().max(500).optional(),
  /** How it is called, for indexers. What does not fit is left out: nobody goes unpaid for a description. */
  call: z
    .object({ method: z.string().max(10), input: inputSchema.optional(), output: outputSchema.optional() })
    .optional()
    .catch(undefined),
});
const verifyBody = z
  .strictObject({
    bind: z.string().max(400).optional(),
    amount: usd.optional(),
    resource: z.url().max(2048).optional(),
    x402v1: z.boolean().default(false),
  })
  .refine(({ x402v1, bind, amount }) => !x402v1 || (bind !== undefined && amount !== undefined), {
    path: ['x402v1'],
    message: 'needs "amount" and "bind": payments of x402 v1 do not say what they are for',
  });
const captureBody = z.strictObject({
  hold: z.string().max(80),
  amount: z
    .string()
    .regex(/^\d{1,6}(\.\d{1,6})?$/)
    .transform((text) => parseUsd(text))
    .optional(),
});
const releaseBody = z.strictObject({ hold: z.string().max(80), reason: z.string().max(200).optional() });
const outcomeBody = z.strictObject({ payment: z.string().max(80), attempt: z.number().int().min(1) });
const meterBody = z.strictObject({
  ...outcomeBody.shape,
  total: z
    .string()
    .regex(/^\d{1,6}(\.\d{1,6})?$/, 'is an amount in USD such as "0.05"')
    .transform((text) => parseUsd(text)),
});
const proofBody = z.strictObject({
  scope: z.string().max(200).optional(),
  description: z.string().max(300).optional(),
  expectedOwner: z
    .string()
    .regex(/^0x[0-9a-fA-F]{40}$/)
    .optional(),
});

const MAX_BODY = 16 * 1024;

export interface BindingsOptions {
  machine: SettlementMachine;
  live: LiveCalls;
  offers: OfferBook;
  challenger: Challenger;
  proof: ProofVerifier;
  challengeKey: string;
  /** Signs what x402 challenges carry. */
  tokenKey: Buffer;
  mandates: Mandates | undefined;
  /** Signs what tenants keep of mandates. */
  mandateKey: Buffer;
  feeBps: number;
  realm(): string;
  /** A 402 as a page. */
  page: ChallengePage | undefined;
  log: Logger;
}

/** @param answer 402 with a problem document @param asked how the caller called; the URL as the caller sees it */
export type ChallengePage = (
  answer: { headers: Record<string, string>; body: string },
  asked: { method: string; url: string; programs: boolean },
) => { headers: Record<string, string>; body: string };

/** What an x402 challenge carries, because its clients authenticate nothing else of it. */
interface Claims {
  tenant: string;
  amount: string;
  meta: Record<string, string>;
}

interface Tenant {
  tenant: string;
  slug: string;
  payTo: Address;
}

export class PaymentService implements PaymentBindings {
  readonly #options: BindingsOptions;
  readonly #servers = new Map<string, { server: Server; socket: string }>();
  readonly #tokens: Sealed<Claims>;
  readonly #mandates: Sealed<SealedMandate>;

  constructor(options: BindingsOptions) {
    this.#options = options;
    this.#tokens = new Sealed(options.tokenKey);
    this.#mandates = new Sealed(options.mandateKey);
  }

  async open({ tenant, slug, payTo, socket }: Tenant & { socket: string }): Promise<void> {
    const known = this.#servers.get(tenant);
    if (known?.socket === socket) return;
    await this.close({ tenant });
    await rm(socket, { force: true });
    const app = this.app({ tenant, slug, payTo });
    const server = createServer(getRequestListener(releasingBodies((request) => app.fetch(request))));
    await new Promise<void>((resolve, reject) =>
      server.once('error', reject).listen({ path: socket, backlog: BACKLOG }, resolve),
    );
    this.#servers.set(tenant, { server, socket });
  }

  async close({ tenant }: { tenant: string }): Promise<void> {
    const known = this.#servers.get(tenant);
    if (!known) return;
    this.#servers.delete(tenant);
    known.server.closeAllConnections();
    await new Promise((resolve) => known.server.close(resolve));
    await rm(known.socket, { force: true });
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#servers.keys()].map((tenant) => this.close({ tenant })));
  }

  /** The service of one tenant, without a socket. */
  app(tenant: Tenant): Hono {
    const app = new Hono();
    app.onError((error) => {
      const problem = asProblem(error);
      if (problem.isFault) this.#options.log.error({ err: error, tenant: tenant.tenant }, 'env.PAYMENTS failed');
      return problem.toResponse();
    });
    app.post('/challenge', async (c) => this.#challenge(tenant, await read(tenant, c.req.raw, challengeBody)));
    app.post('/verify', async (c) =>
      Response.json(await this.#verify(tenant, c.req.raw.headers, await read(tenant, c.req.raw, verifyBody))),
    );
    app.post('/capture', async (c) =>
      Response.json(await this.#capture(tenant, await read(tenant, c.req.raw, captureBody))),
    );
    app.post('/release', async (c) =>
      Response.json(await this.#release(tenant, await read(tenant, c.req.raw, releaseBody))),
    );
    app.post('/proof', async (c) => this.#proof(tenant, c.req.raw.headers, await read(tenant, c.req.raw, proofBody)));
    app.post('/outcome', async (c) =>
      Response.json(await this.#outcome(tenant, await read(tenant, c.req.raw, outcomeBody))),
    );
    app.post('/meter', async (c) => Response.json(await this.#meter(tenant, await read(tenant, c.req.raw, meterBody))));
    mandateRoutes(app, tenant, {
      mandates: this.#options.mandates,
      sealed: this.#mandates,
      realm: this.#options.realm,
      fields,
      read: (request, schema) => read(tenant, request, schema),
      challenge: (body) => this.#challenge(tenant, checked(body, challengeBody)),
    });
    app.notFound(() =>
      new Problem(
        'not_found',
        'env.PAYMENTS has POST /challenge /verify /capture /release /outcome /meter /proof /mandate /mandate/accept /mandate/pay.',
      ).toResponse(),
    );
    return app;
  }

  #challenge(tenant: Tenant, body: z.infer<typeof challengeBody>): Response {
    const { offers, challenger, realm, page } = this.#options;
    const meta: Record<string, string> = {
      ...Object.fromEntries(Object.entries(body.metadata ?? {}).map(([name, value]) => [`m.${name}`, value])),
      ...(body.bind === undefined ? {} : { bind: digest(body.bind) }),
    };
    const terms = this.#terms(tenant, body.amount, meta, body.description);
    const resource = body.resource ?? `https://${realm()}/${tenant.slug}`;
    const discovery = body.call && discoveryOf(body.call.method, body.call);
    const problem = body.refused === undefined ? undefined : new Problem('payment_invalid', body.refused);
    const context = { realm: realm(), resource, discovery, version1: body.x402v1 };
    const answer = challenger.answer(offers.prepare(terms), context, problem);
    const inPages = page && body.resource !== undefined && prefersHtml(body.accept);
    const shown = inPages
      ? page(answer, { method: body.call?.method ?? 'GET', url: resource, programs: body.programs })
      : answer;
    return new Response(shown.body, { status: 402, headers: shown.headers });
  }

  async #verify(tenant: Tenant, headers: Headers, body: z.infer<typeof verifyBody>) {
    const { machine, offers, realm } = this.#options;
    const presented = readCredential(headers, this.#options.challengeKey);
    if (!presented)
      throw new Problem('payment_required', 'The caller sent no payment; answer it with POST /challenge.');
    const { amount, meta } = this.#claims(tenant, presented, body);
    if ((meta.bind ?? undefined) !== (body.bind === undefined ? undefined : digest(body.bind)))
      throw new Problem(
        'payment_invalid',
        'The payment was made for something else (bind does not match); pay the challenge of this request.',
      );
    if (body.amount !== undefined && body.amount !== amount)
      throw new Problem('payment_invalid', `The payment is for ${formatUsd(amount)} USD.`);
    const named = methodOf(presented).named(presented);
    const admitted = await machine.admit({
      caller: tenant.tenant,
      presented,
      prepared: offers.prepare(this.#terms(tenant, amount, meta)),
      asked: {
        realm: realm(),
        resource: body.resource ?? named.resource ?? '',
        digest: named.digest,
        now: Date.now(),
      },
      place: placeOf(
        ['binding', tenant.slug, body.resource ?? ''],
        Buffer.from(JSON.stringify([body.bind ?? null, amount.toString(), Object.entries(meta).sort()])),
      ),
      idempotencyKey: readIdempotencyKey(headers),
      state: 'working',
    });
    if (admitted.kind === 'replay') return this.#view(admitted.again.row, meta, true);
    admitted.done();
    return this.#view(admitted.row, meta, false);
  }

  async #capture(tenant: Tenant, body: z.infer<typeof captureBody>) {
    const { machine } = this.#options;
    const found = await this.#hold(tenant, body.hold);
    return machine.exclusively(found, async () => {
      const row = await this.#hold(tenant, body.hold);
      const amount = body.amount ?? row.authorized;
      // Where no handle is noted, only the first one can have captured it.
      const capturedBy = row.capturedBy ?? (row.state === 'answered' ? row.id : null);
      if (capturedBy !== null && capturedBy !== body.hold)
        throw new Problem(
          'conflict',
          'This payment was captured for another call that it was sent with. It pays for one only.',
        );
      if (row.state === 'answered') {
        const charged = formatUsd(row.charged ?? micro(0));
        if (body.amount === undefined)
          throw new Problem(
            'conflict',
            `This hold was captured with ${charged} USD; name that amount for its receipt.`,
          );
        if (row.charged !== amount) throw new Problem('conflict', `This hold was captured with ${charged} USD.`);
        return this.#captured(row);
      }
      const early = row.state === 'settled' && row.charged === null;
      if (row.state !== 'working' && !early)
        throw new Problem('conflict', `This hold is ${row.state}; it cannot be captured.`);
      if (amount > row.authorized)
        throw new Problem(
          'invalid_field',
          `At most ${formatUsd(row.authorized)} USD were authorized; capture no more than that.`,
        );
      const taken = await machine.take({ ...row, capturedBy: body.hold }, amount);
      return this.#captured(taken.state === 'answered' ? taken : await machine.store.answered(taken, undefined, false));
    });
  }

  async #release(tenant: Tenant, body: z.infer<typeof releaseBody>) {
    const { machine } = this.#options;
    const found = await this.#hold(tenant, body.hold);
    return machine.exclusively(found, async () => {
      const row = await this.#hold(tenant, body.hold);
      const reason = body.reason ?? 'released by the tenant';
      if (row.state === 'working') return { hold: row.id, state: (await machine.release(row, reason)).state };
      if (row.state === 'settled' && row.charged === null)
        return { hold: row.id, state: (await machine.store.refunds.owe(row, reason)).state };
      if (row.state === 'released' || row.state === 'refund_owed' || row.state === 'refunded')
        return { hold: row.id, state: row.state };
      throw new Problem('conflict', `This hold is ${row.state}; it cannot be released.`);
    });
  }

  /**
   * What became of a call of a paid route, for work that leaves by another way than its answer. A released payment may
   * pay for another call later: only the attempt that the handler was told of (`x-payment-attempt`) counts.
   */
  async #outcome(tenant: Tenant, { payment, attempt }: z.infer<typeof outcomeBody>) {
    const row = await this.#options.machine.store.byId(payment);
    if (row?.kind !== 'route' || row.tenant !== tenant.tenant)
      throw new Problem('not_found', 'There is no such payment; give an id that verify() answered.');
    return { payment: row.id, outcome: outcomeOf(row, attempt) };
  }

  /**
   * What a call of a route with `live` has cost so far. It is noted when this is answered: what the handler gives its
   * caller after that is paid for, whatever breaks off.
   */
  async #meter(tenant: Tenant, report: z.infer<typeof meterBody>) {
    const { total, held } = await this.#options.live.report(tenant.tenant, report);
    return { payment: report.payment, total: formatUsd(total), held: formatUsd(held) };
  }

  async #proof(tenant: Tenant, headers: Headers, body: z.infer<typeof proofBody>): Promise<Response> {
    const { proof, realm } = this.#options;
    const context = { realm: realm(), resource: `https://${realm()}/${tenant.slug}` };
    const result = await proof.prove(headers, context, {
      scope: `tenant:${tenant.tenant}:${body.scope ?? ''}`,
      ...(body.description === undefined ? {} : { description: body.description }),
      ...(body.expectedOwner === undefined ? {} : { expectedOwner: body.expectedOwner.toLowerCase() as Address }),
    });
    if ('response' in result) return result.response;
    return Response.json({ payer: result.payer.did, address: result.payer.address });
  }

  /** A hold of this tenant. @throws Problem `not_found` for everybody else's */
  async #hold(tenant: Tenant, id: string): Promise<PaymentRow> {
    const [payment = ''] = id.split('.');
    const row = await this.#options.machine.store.byId(payment);
    if (row?.kind !== 'binding' || row.tenant !== tenant.tenant)
      throw new Problem('not_found', 'There is no such hold; give the id that verify() answered with hold.');
    return row;
  }

  #view(row: PaymentRow, meta: Record<string, string>, again: boolean) {
    return {
      // One payment is captured by one handle: two calls that bring it cannot both be paid by it.
      hold: again ? `${row.id}.${randomBytes(6).toString('base64url')}` : row.id,
      payment: row.id,
      payer: row.payerDid,
      address: row.payer,
      amount: formatUsd(row.authorized),
      rail: row.rail,
      state: row.state,
      again,
      metadata: Object.fromEntries(
        Object.entries(meta)
          .filter(([name]) => name.startsWith('m.'))
          .map(([name, value]) => [name.slice(2), value]),
      ),
    };
  }

  #captured(row: PaymentRow) {
    return { hold: row.id, state: row.state, amount: formatUsd(row.charged ?? micro(0)), headers: receiptHeaders(row) };
  }

  /** What the challenge said: authenticated by the credential, or in the token that clients echo. */
  #claims(
    tenant: Tenant,
    presented: Presented,
    body: z.infer<typeof verifyBody>,
  ): { amount: Money; meta: Record<string, string> } {
    const named = methodOf(presented).named(presented);
    // A payment of x402 v1 does not say what it is for. It is recorded for what the seller names.
    if (named.version1 && body.x402v1) return { amount: micro(named.amount), meta: { bind: digest(body.bind ?? '') } };
    if (named.version1)
      throw new Problem(
        'payment_invalid',
        'This seller takes no payments of x402 v1 here; pay by x402 v2 or MPP, as the challenge says.',
      );
    if (named.meta) {
      const { n: _nonce, scope, token: _token, ...meta } = named.meta;
      if (scope !== scopeOf(tenant))
        throw new Problem('payment_invalid', 'The payment is for another seller; pay the challenge of this one.');
      return { amount: micro(named.amount), meta };
    }
    const claims = this.#tokens.open(named.token);
    if (claims?.tenant !== tenant.tenant || BigInt(claims.amount) !== named.amount)
      throw new Problem(
        'payment_invalid',
        'The payment is for another seller or another price; pay the challenge of this one.',
      );
    return { amount: micro(named.amount), meta: claims.meta };
  }

  #terms(tenant: Tenant, amount: Money, meta: Record<string, string>, description?: string): Terms {
    return {
      kind: 'binding',
      name: 'env.PAYMENTS',
      scope: scopeOf(tenant),
      slug: tenant.slug,
      tenant: tenant.tenant,
      amount,
      mode: 'metered',
      slow: true,
      payTo: tenant.payTo,
      feeBps: this.#options.feeBps,
      description: description ?? `${formatUsd(amount)} USD to ${tenant.slug}`,
      sku: undefined,
      pricingVersion: undefined,
      meta: { ...meta, token: this.#tokens.seal({ tenant: tenant.tenant, amount: amount.toString(), meta }) },
    };
  }
}

/** `charged` and `unpaid` are final. A payment that was taken before the work is `open` until its answer is stored. */
function outcomeOf(row: PaymentRow, attempt: number): 'open' | 'charged' | 'unpaid' {
  if (row.attempts !== attempt || ['released', 'refund_owed', 'refunded'].includes(row.state)) return 'unpaid';
  if (row.state !== 'answered') return 'open';
  return row.charged !== null && row.charged > 0n ? 'charged' : 'unpaid';
}

function scopeOf({ tenant }: Tenant): string {
  return `binding:${tenant}`;
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

/** @throws Problem `invalid_json`, `invalid_field`, `too_large` */
async function read<T>({ tenant }: Tenant, request: Request, schema: z.ZodType<T>): Promise<T> {
  const text = (await readBody(request, MAX_BODY, tenant)).toString('utf8');
  let value: unknown;
  try {
    value = text === '' ? {} : JSON.parse(text);
  } catch {
    throw new Problem('invalid_json', 'The body is not JSON; send a JSON object.');
  }
  return checked(value, schema);
}

/** @throws Problem `invalid_field` */
function checked<T>(value: unknown, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const errors = parsed.error.issues.map((issue) => ({ pointer: `/${issue.path.join('/')}`, detail: issue.message }));
  throw new Problem('invalid_field', `${errors[0]?.pointer} ${errors[0]?.detail}.`, { errors });
}
