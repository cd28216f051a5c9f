/** Control's HTTP application: the endpoints of the endpoint table, the pages, and what edges hand over. */
import { Hono } from 'hono';
import type { Logger } from 'pino';
import type { Payments } from '../payments/types.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import { refuseKeys } from './deploy-keys.ts';
import { readContext } from './edge-context.ts';
import type { Endpoint } from './endpoint.ts';
import type { Page } from './pages/page.ts';
import { forCaller, type ProblemPages, urlOf } from './pages/problem.ts';
import { paidByCookie } from './payment-cookie.ts';

/** Answers messages of MCP. */
type Mcp = (request: Request, context: EdgeContext) => Promise<Response>;

export interface App {
  fetch(request: Request): Promise<Response>;
}

export interface AppDeps {
  endpoints: Endpoint[];
  /** Called with the first message of an agent. @param fetch this application */
  mcp(fetch: (request: Request) => Response | Promise<Response>): Promise<Mcp>;
  /** Called with the first request that no endpoint takes. */
  pages(): Promise<Page[]>;
  health(): { ready: boolean; body: unknown };
  payments: Pick<Payments, 'headers'>;
  /** Requests that belong to a tenant (paid, expired, decommissioned). */
  tenant(request: Request, context: EdgeContext, slug: string): Promise<Response>;
  /** The answer to an ACME HTTP-01 challenge that is on show now. */
  challenge(token: string): string | undefined;
  problemPages: ProblemPages;
  /** Told of every answer, for metrics. */
  observe(request: { kind: string; status: number; seconds: number }): void;
  log: Logger;
}

/** Scripts of every origin may call the API: it knows no cookies. */
function corsHeaders({ headers }: Pick<Payments, 'headers'>): Record<string, string> {
  const sent = [
    'authorization',
    'content-type',
    'idempotency-key',
    ...headers.credentials,
    'mcp-protocol-version',
    'mcp-session-id',
    'sign-in-with-x',
    'x-payment',
    'x-request-id',
  ];
  return {
    'access-control-allow-origin': '*',
    'access-control-allow-methods': 'GET, HEAD, POST, PUT, DELETE, OPTIONS',
    'access-control-allow-headers': [...new Set(sent)].join(', '),
    'access-control-expose-headers': `${headers.exposed}, X-Request-Id, Location`,
  };
}

export function createApp(deps: AppDeps): App {
  const { endpoints, mcp, pages, payments, problemPages, tenant, challenge, health, observe, log } = deps;
  const app = new Hono();
  const cors = corsHeaders(payments);

  // RFC 8555, 8.3: on every host name that a certificate is asked for.
  app.get('/.well-known/acme-challenge/:token', (c) => {
    const proof = challenge(c.req.param('token'));
    if (proof === undefined) throw new Problem('not_found', 'The host has no such ACME challenge in progress.');
    return c.body(proof, 200, { 'content-type': 'application/octet-stream' });
  });

  for (const endpoint of endpoints) {
    app.on(endpoint.method, endpoint.path, async (c) => {
      const { keyActions } = endpoint;
      const call = { request: c.req.raw, context: readContext(c.req.raw), params: c.req.param(), keyActions };
      refuseKeys(endpoint, call);
      return await forCaller(problemPages, call.request, call.context, await endpoint.handle(call));
    });
  }
  app.get('/healthz', (c) => {
    const { ready, body } = health();
    return c.json(body as object, ready ? 200 : 503, { 'cache-control': 'no-cache' });
  });
  let free: Promise<PageRoutes> | undefined;
  app.get('*', async (c, next) => {
    free ??= pages().then(pageRoutes);
    const page = await (await free)(c.req.raw);
    return page.status === NO_PAGE ? next() : page;
  });

  let agents: Promise<Mcp> | undefined;
  app.post('/mcp', async (c) => {
    agents ??= mcp((request) => answer(request, readContext(request)));
    return (await agents)(c.req.raw, readContext(c.req.raw));
  });
  // Clients try whether they may listen.
  app.on(['GET', 'DELETE'], '/mcp', () => {
    throw new Problem('method_not_allowed', 'Agents send their messages by POST; see /llms.txt.', {
      headers: { allow: 'POST' },
    });
  });

  app.on(
    'OPTIONS',
    ['/_admin/*', '/mcp'],
    () => new Response(null, { status: 204, headers: { ...cors, 'access-control-max-age': '86400' } }),
  );

  app.all('*', (c) => {
    const { pathname } = new URL(c.req.url);
    const fitting = endpoints.filter((endpoint) => matches(endpoint.path, pathname));
    const exact = fitting.filter((endpoint) => endpoint.path === pathname);
    const known = exact.length > 0 ? exact : fitting;
    if (known.length > 0) {
      const allow = known.map((endpoint) => endpoint.method).join(', ');
      throw new Problem(
        'method_not_allowed',
        `This path accepts only ${allow}. See /llms.txt for what this host offers.`,
        {
          headers: { allow },
        },
      );
    }
    throw new Problem('not_found', `This host has nothing at ${pathname}. See /llms.txt for what this host offers.`);
  });

  const failed = (error: unknown, request: Request, context: EdgeContext) => {
    const { requestId } = context;
    const problem = asProblem(error);
    if (problem.isFault) log.error({ err: error, requestId }, 'unexpected error');
    return forCaller(problemPages, request, context, problem.toResponse(requestId));
  };
  app.onError((error, c) => failed(error, c.req.raw, readContext(c.req.raw)));

  /** A request that belongs to a tenant. */
  async function handOver(asked: Request, context: EdgeContext, slug: string): Promise<Response> {
    try {
      const request = paidByCookie(asked, urlOf(context, asked.url), payments.headers.credentials);
      return await forCaller(problemPages, asked, context, await tenant(request, context, slug));
    } catch (error) {
      return await failed(error, asked, context);
    }
  }

  async function answer(request: Request, context: EdgeContext): Promise<Response> {
    return await (context.slug === undefined ? app.fetch(request) : handOver(request, context, context.slug));
  }

  return {
    async fetch(request) {
      const context = readContext(request);
      const { slug } = context;
      const from = performance.now();
      const response = await answer(request, context);
      observe({ kind: kindOf(slug, request), status: response.status, seconds: (performance.now() - from) / 1000 });
      // A tenant's own answer is passed on as it is; everything else is ours.
      return slug === undefined ? withCommonHeaders(response, cors, context.requestId) : response;
    },
  };
}

/** Of `pageRoutes` alone: nobody gets to see it. */
const NO_PAGE = 599;

type PageRoutes = (request: Request) => Response | Promise<Response>;

function pageRoutes(pages: readonly Page[]): PageRoutes {
  const hosts = new Map([...new Set([undefined, ...pages.map(({ at }) => at)])].map((at) => [at, new Hono()]));
  for (const { at, path, render } of pages) hosts.get(at)?.get(path, (c) => render(readContext(c.req.raw)));
  const rest = hosts.get(undefined) ?? new Hono();
  for (const app of hosts.values()) {
    app.notFound(() => new Response(null, { status: NO_PAGE }));
    app.onError((error) => {
      throw error;
    });
  }
  return (request) => (hosts.get(readContext(request).host.toLowerCase()) ?? rest).fetch(request);
}

function withCommonHeaders(response: Response, cors: Record<string, string>, requestId: string): Response {
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(cors)) if (!headers.has(name)) headers.set(name, value);
  headers.set('x-request-id', requestId);
  headers.set('x-content-type-options', 'nosniff');
  if (!headers.has('referrer-policy')) headers.set('referrer-policy', 'no-referrer');
  return new Response(response.body, { status: response.status, headers });
}

/** Few, so that metrics stay bounded. */
function kindOf(slug: string | undefined, request: Request): string {
  if (slug !== undefined) return 'tenant';
  return new URL(request.url).pathname.startsWith('/_admin/') ? 'admin' : 'page';
}

function matches(pattern: string, path: string): boolean {
  const expected = pattern.split('/');
  const given = path.split('/');
  return (
    expected.length === given.length &&
    expected.every((part, index) => part === given[index] || (part.startsWith(':') && given[index] !== ''))
  );
}
