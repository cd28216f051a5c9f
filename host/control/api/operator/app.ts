/**
 * The operator's API, on loopback only. Over TCP it takes the operator's token; over the unix socket in the data
 * folder the file's permission is the proof. Public endpoints need neither.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { Hono } from 'hono';
import type { Logger } from 'pino';
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
  version: string;
  log: Logger;
}

/** @param trusted whether who connects has proved to be the operator already (unix socket) */
export function createOperatorApp(options: OperatorAppOptions, trusted: boolean): Hono {
  const { endpoints, tokenHash, names, builtinApis, version, log } = options;
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
    app.on(endpoint.method, endpoint.path, (c) => endpoint.handle({ request: c.req.raw, params: c.req.param() }));
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
  for (const [slug, api] of builtinApis) app.all(`/${slug}/*`, (c) => api(c.req.raw));
  app.notFound(() => {
    const paths = [...endpoints.map(({ path }) => path), ...[...builtinApis.keys()].map((slug) => `/${slug}/*`)];
    return new Problem(
      'not_found',
      `The operator API has no such path. It has: ${[...new Set(paths)].join(' ')}; GET /openapi.json describes them.`,
    ).toResponse();
  });
  return app;
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
