/**
 * The operator's API, on loopback only. Over TCP it takes the operator's token; over the unix socket in the data
 * folder the file's permission is the proof. Metrics and health need neither.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { BackupChoice } from '../../backup/index.ts';
import type { Payments } from '../../payments/types.ts';
import type { Deployments } from '../../registry/deployments.ts';
import type { Secrets } from '../../registry/secrets.ts';
import { formatUsd } from '../../shared/money.ts';
import { asProblem, Problem } from '../../shared/problem.ts';
import { readBody } from '../../shared/request-body.ts';
import { iso } from '../metadata.ts';
import type { BuiltinApis } from './builtin-apis.ts';

export interface OperatorDeps {
  tokenHash: string;
  /** Names, beside those of loopback, by which the operator's port may be called; lowercase. */
  names: readonly string[];
  deployments: Deployments;
  secrets: Secrets;
  payments: Payments;
  log: Logger;
  health(): { ready: boolean; body: unknown };
  metrics(): Promise<string>;
  /** Moves business time; refused unless `clock.movable`. */
  moveClock(offsetMs: number): Promise<{ now: number; offsetMs: number }>;
  clockOffset(): number;
  backup(choice: BackupChoice): Promise<unknown>;
  /** Operator APIs of built-in tenants. */
  builtinApis: BuiltinApis;
  /** Caddy's on-demand TLS question: may a certificate be made for this name? */
  mayServe(domain: string): Promise<boolean>;
}

const MAX_BODY_BYTES = 65_536;
/** A century: dates of it can be written. */
const MOST_CLOCK_MS = 100 * 365 * 86_400_000;
const clockMs = z.number().int().min(-MOST_CLOCK_MS).max(MOST_CLOCK_MS);
const clockBody = z.union([z.strictObject({ advanceMs: clockMs }), z.strictObject({ offsetMs: clockMs })]);
const backupBody = z.strictObject({
  target: z.string().min(1).optional(),
  passphraseFile: z.string().min(1).optional(),
});
const resolveBody = z.strictObject({ action: z.enum(['retry', 'paid', 'waive']), reference: z.string().optional() });

/** @param trusted whether who connects has proved to be the operator already (unix socket) */
export function createOperatorApp(deps: OperatorDeps, trusted: boolean): Hono {
  const { payments, deployments, secrets } = deps;
  const app = new Hono();
  app.use(async function requireOwnName(c, next) {
    // A page whose name was pointed at this machine comes with its own name (DNS rebinding).
    if (!trusted && !isOwnName(c.req.header('host') ?? new URL(c.req.url).host, deps.names)) {
      throw new Problem(
        'forbidden',
        'The operator API answers at this machine’s loopback names and at the host’s own name; call it as http://127.0.0.1:<port>.',
      );
    }
    await next();
  });
  app.onError((error) => {
    const problem = asProblem(error);
    if (problem.code === 'internal') deps.log.error({ err: error }, 'unexpected error in the operator API');
    return problem.toResponse();
  });
  app.get('/metrics', async (c) =>
    c.text(await deps.metrics(), 200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }),
  );
  app.get('/healthz', (c) => {
    const { ready, body } = deps.health();
    return c.json(body as object, ready ? 200 : 503);
  });
  app.get('/ask', async (c) => c.body(null, (await deps.mayServe(c.req.query('domain') ?? '')) ? 200 : 404));

  app.use(async function requireToken(c, next) {
    if (!trusted && !isOperator(c.req.header('authorization'), deps.tokenHash)) {
      throw new Problem(
        'unauthorized',
        'Give the operator token, which the first start printed: Authorization: Bearer <token>. Over run/operator.sock of the data folder none is needed.',
      );
    }
    await next();
  });
  app.get('/clock', (c) => c.json({ now: iso(Date.now() + deps.clockOffset()), offsetMs: deps.clockOffset() }));
  app.post('/clock', async (c) => {
    const body = parse(clockBody, await readJson(c.req.raw));
    const moved = await deps.moveClock('offsetMs' in body ? body.offsetMs : deps.clockOffset() + body.advanceMs);
    return c.json({ now: iso(moved.now), offsetMs: moved.offsetMs });
  });
  app.get('/tenants', async (c) =>
    c.json({
      tenants: (await deployments.all()).map(
        ({ slug, tenant, state, owner, version, createdAt, expiresAt, builtin }) => ({
          slug,
          tenant,
          state,
          owner,
          version,
          builtin,
          createdAt: iso(createdAt),
          expiresAt: builtin ? null : iso(expiresAt),
        }),
      ),
    }),
  );
  app.post('/secrets/rotate', async (c) => c.json({ resealed: await secrets.rotate() }));
  app.post('/backup', async (c) => c.json((await deps.backup(parse(backupBody, await readJson(c.req.raw)))) as object));
  for (const [slug, api] of deps.builtinApis) app.all(`/${slug}/*`, (c) => api(c.req.raw));
  app.get('/payments', async (c) =>
    c.json({
      stopped: payments.ledger.stopped() ?? null,
      summary: await payments.ledger.summary(),
      open: await payments.ledger.open(),
      gas: await gasText(payments),
    }),
  );
  app.post('/payments/resume', async (c) => {
    await payments.ledger.resume();
    return c.json({ stopped: payments.ledger.stopped() ?? null });
  });
  app.get('/payments/csv', async (c) =>
    c.body(await payments.ledger.csv({}), 200, { 'content-type': 'text/csv; charset=utf-8' }),
  );
  app.get('/payments/revenue', async (c) =>
    c.json({
      revenue: (await payments.ledger.revenue({})).map((row) => ({
        ...row,
        gross: formatUsd(row.gross),
        fee: formatUsd(row.fee),
        refunded: formatUsd(row.refunded),
      })),
    }),
  );
  app.get('/payments/:payment/lines', async (c) =>
    c.json({
      lines: (await payments.ledger.lines({ payment: c.req.param('payment') })).map((line) => ({
        ...line,
        amount: line.amount.toString(),
      })),
    }),
  );
  app.post('/payments/reconcile', async (c) => {
    const report = await payments.ledger.reconcile();
    return c.json(report, report.ok ? 200 : 409);
  });
  app.post('/payments/open/:id', async (c) => {
    const { action, reference } = parse(resolveBody, await readJson(c.req.raw));
    const item = await payments.ledger.resolve(c.req.param('id'), { action, ...(reference ? { reference } : {}) });
    return c.json({ resolved: item === undefined, ...(item ? { item } : {}) });
  });
  app.notFound(() =>
    new Problem(
      'not_found',
      `The operator API has no such path. It has: /metrics /healthz /ask /clock /tenants /secrets/rotate /backup /payments ${[...deps.builtinApis.keys()].map((slug) => `/${slug}`).join(' ')}`,
    ).toResponse(),
  );
  return app;
}

const LOOPBACK_NAMES = ['localhost', '[::1]'];

/** @param host a Host field */
function isOwnName(host: string, names: readonly string[]): boolean {
  const name = host.toLowerCase().replace(/:\d+$/, '').replace(/\.$/, '');
  return LOOPBACK_NAMES.includes(name) || /^127(?:\.\d{1,3}){3}$/.test(name) || names.includes(name);
}

async function gasText(payments: Payments) {
  const { floor, tenants } = await payments.ledger.gas();
  return {
    leastX402Price: formatUsd(floor),
    tenants: tenants.map(({ tenant, spent, budget, isUsedUp }) => ({
      tenant,
      today: formatUsd(spent),
      budget: formatUsd(budget),
      isUsedUp,
    })),
  };
}

function isOperator(header: string | undefined, tokenHash: string): boolean {
  const token = /^Bearer (\S+)$/i.exec(header ?? '')?.[1] ?? '';
  return timingSafeEqual(createHash('sha256').update(token).digest(), Buffer.from(tokenHash, 'hex'));
}

async function readJson(request: Request): Promise<unknown> {
  const text = (await readBody(request, MAX_BODY_BYTES, 'operator')).toString('utf8');
  try {
    return text === '' ? {} : JSON.parse(text);
  } catch {
    throw new Problem('invalid_json', 'The body is not JSON; send an object.');
  }
}

function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Problem(
    'invalid_field',
    parsed.error.issues.map((issue) => `${issue.path.join('.') || 'The body'}: ${issue.message}`).join('; '),
  );
}
