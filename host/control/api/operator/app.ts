/**
 * The operator's API, on loopback only. Over TCP it takes the operator's token; over the unix socket in the data
 * folder the file's permission is the proof. Public endpoints need neither.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { type Context, Hono } from 'hono';
import type { Logger } from 'pino';
import type { Audit } from '../../../registry/audit.ts';
import { asProblem, Problem } from '../../../shared/problem.ts';
import { json } from '../../endpoint.ts';
import { operatorDocument } from '../../pages/openapi.ts';
import type { BuiltinApis } from './builtin-apis.ts';
import type { OperatorEndpoint } from './endpoint.ts';

export interface OperatorAppOptions {
  endpoints: readonly OperatorEndpoint[];
  /** SHA-256 of the operator's token, hexadecimal. */
  tokenHash: string;
  /** Names, beside those of loopback, by which the operator's port may be called; lowercase. */
  names: readonly string[];
  /** Operator APIs of built-in tenants. */
  builtinApis: BuiltinApis;
  audit: Pick<Audit, 'begin' | 'end'>;
  version: string;
  log: Logger;
}

/** @param trusted whether who connects has proved to be the operator already (unix socket) */
export function createOperatorApp(options: OperatorAppOptions, trusted: boolean): Hono {
  const { endpoints, tokenHash, names, builtinApis, audit, version, log } = options;
  const address = trusted ? 'operator.sock' : '127.0.0.1';
  const app = new Hono();
  app.use(async function requireOwnName(c, next) {
    // A page whose name was pointed at this machine comes with its own name (DNS rebinding).
    if (!trusted && !isOwnName(c.req.header('host') ?? new URL(c.req.url).host, names)) {
      throw new Problem(
        'forbidden',
        'The operator API answers at this machine’s loopback names and at the host’s own name; call it as http://127.0.0.1:<port>.',
      );
    }
    await next();
  });
  app.onError((error) => {
    const problem = asProblem(error);
    if (problem.code === 'internal') log.error({ err: error }, 'unexpected error in the operator API');
    return problem.toResponse();
  });
  const serve = (endpoint: OperatorEndpoint) =>
    app.on(endpoint.method, endpoint.path, (c) => {
      const { method, path, body } = endpoint;
      const params = c.req.param();
      return recorded(c, { act: `${method} ${path}`, hasBody: body !== undefined, params }, endpoint.handle);
    });
  /** Does what a call asks for, and writes down what changes something. */
  async function recorded(
    c: Context,
    { act, hasBody, params }: { act: string; hasBody: boolean; params: Record<string, string> },
    handle: OperatorEndpoint['handle'],
  ): Promise<Response> {
    const { raw: request, method } = c.req;
    if (method === 'GET' || method === 'HEAD') return handle({ request, params, begin: async () => undefined });
    let entry: number | undefined;
    const begin = async (given: Record<string, unknown>): Promise<void> => {
      entry ??= await audit.begin({ act, address, ...describedAct(params, given) });
    };
    const end = async (outcome: number): Promise<void> => {
      if (entry === undefined) return;
      await audit.end(entry, outcome).catch((error) => log.warn({ err: error, act }, 'an outcome was not noted'));
    };
    try {
      if (!hasBody) await begin({});
      const response = await handle({ request, params, begin });
      await end(response.status);
      return response;
    } catch (error) {
      await end(asProblem(error).status);
      throw error;
    }
  }
  for (const endpoint of endpoints) if (endpoint.access === 'public') serve(endpoint);
  app.get('/openapi.json', (c) => json(operatorDocument(endpoints, new URL(c.req.url).origin, version)));

  app.use(async function requireToken(c, next) {
    if (!trusted && !isOperator(c.req.header('authorization'), tokenHash)) {
      throw new Problem(
        'unauthorized',
        'Give the operator token, which the first start printed: Authorization: Bearer <token>. Over run/operator.sock of the data folder none is needed.',
      );
    }
    await next();
  });
  for (const endpoint of endpoints) if (endpoint.access !== 'public') serve(endpoint);
  for (const [slug, api] of builtinApis) {
    // What its bodies hold is the tenant's own matter, secrets perhaps.
    app.all(`/${slug}/*`, (c) => {
      const act = `${c.req.method} ${c.req.path.slice(0, MOST_OF_A_PATH)}`;
      return recorded(c, { act, hasBody: false, params: { slug } }, ({ request }) => api(request));
    });
  }
  app.notFound(() => {
    const paths = [...endpoints.map(({ path }) => path), ...[...builtinApis.keys()].map((slug) => `/${slug}/*`)];
    return new Problem(
      'not_found',
      `The operator API has no such path. It has: ${[...new Set(paths)].join(' ')}; GET /openapi.json describes them.`,
    ).toResponse();
  });
  return app;
}

const MOST_OF_A_PATH = 200;

function describedAct(params: Record<string, string>, { subject, reason, ...given }: Record<string, unknown>) {
  const { slug, id, ...others } = params;
  const about = slug ?? subject ?? others.subject ?? id;
  const { subject: _, ...parameters } = { ...others, ...given };
  return {
    subject: typeof about === 'string' ? about : null,
    reason: typeof reason === 'string' ? reason : null,
    parameters,
  };
}

const LOOPBACK_NAMES = ['localhost', '[::1]'];

/** @param host a Host field */
function isOwnName(host: string, names: readonly string[]): boolean {
  const name = host.toLowerCase().replace(/:\d+$/, '').replace(/\.$/, '');
  return LOOPBACK_NAMES.includes(name) || /^127(?:\.\d{1,3}){3}$/.test(name) || names.includes(name);
}

function isOperator(header: string | undefined, tokenHash: string): boolean {
  const token = /^Bearer (\S+)$/i.exec(header ?? '')?.[1] ?? '';
  return timingSafeEqual(createHash('sha256').update(token).digest(), Buffer.from(tokenHash, 'hex'));
}
