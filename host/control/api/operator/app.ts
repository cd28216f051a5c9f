/**
 * The operator's API, on loopback only. Over TCP it takes the operator's token; over the unix socket in the data
 * folder the file's permission is the proof. Public endpoints need neither.
 */
import { type Context, Hono } from 'hono';
import type { Logger } from 'pino';
import type { Audit } from '../../../registry/audit.ts';
import { asProblem, Problem } from '../../../shared/problem.ts';
import type { ConsoleOptions, Who } from '../../console/app.ts';
import { BASE } from '../../console/sessions.ts';
import type { OperatorTokens, Role } from '../../console/tokens.ts';
import { json } from '../../endpoint.ts';
import { operatorDocument } from '../../pages/openapi.ts';
import type { BuiltinApis } from './builtin-apis.ts';
import type { OperatorEndpoint } from './endpoint.ts';

export interface OperatorAppOptions {
  endpoints: readonly OperatorEndpoint[];
  tokens: Pick<OperatorTokens, 'roleOf'>;
  /** Names, beside those of loopback, by which the operator's port may be called; lowercase. */
  names: readonly string[];
  /** Operator APIs of built-in tenants. */
  builtinApis: BuiltinApis;
  audit: Pick<Audit, 'begin' | 'end'>;
  version: string;
  log: Logger;
  /** What pages need beside the API. */
  console?: Pick<ConsoleOptions, 'sessions' | 'guesses' | 'builtins' | 'publicUrl'>;
}

/** The caller's role and address, where the console made the request. */
type CalledBy = { Bindings: { who: Who | undefined } };

/** @param trusted whether who connects has proved to be the operator already (unix socket) */
export function createOperatorApp(options: OperatorAppOptions, trusted: boolean): Hono {
  const { tokens, names, audit, log } = options;
  const api = operatorApi(options);
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
  app.onError((error) => answerTo(error, log));
  if (options.console && !trusted) {
    const given = { ...options.console, tokens, audit, log };
    // Loaded with its first page: the host starts sooner.
    let pages: Promise<Hono> | undefined;
    const load = async () => {
      const { createConsole } = await import('../../console/app.ts');
      const built = createConsole({ ...given, api: (request, who) => api.fetch(request, { who }) });
      return new Hono().route(BASE, built);
    };
    const serve = async (c: Context) => {
      pages ??= load();
      return (await pages).fetch(c.req.raw, c.env);
    };
    app.get('/', (c) => c.redirect(BASE, 303));
    app.all(BASE, serve);
    app.all(`${BASE}/*`, serve);
  }
  app.all('*', (c) => {
    const role = trusted ? 'operator' : bearerRole(c.req.header('authorization'), tokens);
    const who = role && { role, address: trusted ? 'operator.sock' : '127.0.0.1' };
    return api.fetch(c.req.raw, { who });
  });
  return app;
}

/** The API itself, whoever calls. */
function operatorApi({ endpoints, builtinApis, audit, version, log }: OperatorAppOptions): Hono<CalledBy> {
  const app = new Hono<CalledBy>();
  app.onError((error) => answerTo(error, log));
  const serve = (endpoint: OperatorEndpoint) =>
    app.on(endpoint.method, endpoint.path, (c) => {
      const { method, path, body, asksAgain } = endpoint;
      const params = c.req.param();
      const about = { act: `${method} ${path}`, hasBody: body !== undefined, params, asksAgain };
      return recorded(c, about, endpoint.handle);
    });
  /** Does what a call asks for, and writes down what changes something. */
  async function recorded(
    c: Context<CalledBy>,
    { act, hasBody, params, asksAgain }: RecordedAct,
    handle: OperatorEndpoint['handle'],
  ): Promise<Response> {
    const { raw: request, method } = c.req;
    if (method === 'GET' || method === 'HEAD') return handle({ request, params, begin: async () => undefined });
    const { who } = c.env;
    let entry: number | undefined;
    const begin = async (given: Record<string, unknown>): Promise<void> => {
      if (who?.isConfirmed === false && asksAgain?.(given))
        throw new Problem('unauthorized', 'Give the operator’s token for this, too. Nothing was done.');
      const by = { address: who?.address ?? '127.0.0.1', role: who?.role ?? 'operator' };
      entry ??= await audit.begin({ act, ...by, ...describedAct(params, given) });
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

  app.use(async function requireRole(c, next) {
    const { who } = c.env;
    if (!who) {
      throw new Problem(
        'unauthorized',
        'Give the operator token, which the first start printed: Authorization: Bearer <token>. Over run/operator.sock of the data folder none is needed.',
      );
    }
    if (who.role === 'reader' && !/^(?:GET|HEAD)$/.test(c.req.method))
      throw new Problem('forbidden', 'This token may only read. Act as the operator to change something.');
    await next();
  });
  for (const endpoint of endpoints) if (endpoint.access !== 'public') serve(endpoint);
  for (const [slug, api] of builtinApis) {
    // What its bodies hold is the tenant's own matter, secrets perhaps.
    app.all(`/${slug}/*`, (c) => {
      const act = `${c.req.method} ${c.req.path.slice(0, MOST_OF_A_PATH)}`;
      // It may be about money: nobody here knows.
      const about = { act, hasBody: false, params: { slug }, asksAgain: () => true };
      return recorded(c, about, ({ request }) => api(request));
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

interface RecordedAct {
  act: string;
  hasBody: boolean;
  params: Record<string, string>;
  asksAgain: OperatorEndpoint['asksAgain'] | undefined;
}

function answerTo(error: Error, log: Logger): Response {
  const problem = asProblem(error);
  if (problem.isFault) log.error({ err: error }, 'unexpected error in the operator API');
  return problem.toResponse();
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

function bearerRole(header: string | undefined, tokens: OperatorAppOptions['tokens']): Role | undefined {
  return tokens.roleOf(/^Bearer (\S+)$/i.exec(header ?? '')?.[1] ?? '');
}
