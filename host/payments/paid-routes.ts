/**
 * The boundary for `paidRoutes` of a deployment: what a tenant sends becomes checked routes here, in the order in
 * which they are matched. Edges and control match with the same function, so that both always agree on what costs money.
 */
import { z } from 'zod';
import { SOLANA_ADDRESS } from '../shared/config.ts';
import { matchPaidRoute, OVERRIDE_FIELDS, overridingMethods, WITH_BODY } from '../shared/match-paid-route.ts';
import { parseUsd } from '../shared/money.ts';
import { type FieldError, Problem } from '../shared/problem.ts';
import { inputSchema, outputSchema } from './discovery.ts';
import type { PaidRoute } from './types.ts';

/** The dearest single call, micro-USD: a typing error in a price should not empty a wallet. */
const MAX_PRICE = 10_000_000_000n;

const METHODS = ['*', 'GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'HEAD'];

const price = z
  .string()
  .regex(/^\d{1,6}(\.\d{1,6})?$/, 'is an amount in USD such as "0.05", at most six decimals')
  .refine((text) => {
    const amount = /^\d{1,6}(\.\d{1,6})?$/.test(text) ? parseUsd(text) : 1n;
    return amount > 0n && amount <= MAX_PRICE;
  }, 'is more than 0 and at most 10000');

function hasPlainSegments(path: string): boolean {
  return !/\/\.{1,2}(\/|$)|\/\//.test(path);
}

const paidRoute = z
  .strictObject({
    method: z
      .string()
      .transform((text) => text.toUpperCase())
      .pipe(z.enum(METHODS as [string, ...string[]], `is one of ${METHODS.join(' ')}`))
      .optional()
      .describe('such as GET; * for all; default: *, and POST for a tool'),
    path: z
      .string()
      .max(512)
      .regex(/^\/[A-Za-z0-9_~./-]*\*?$/, 'starts with "/", has plain segments, and may end in "*"')
      .refine(hasPlainSegments, 'has no empty, "." or ".." segments')
      .describe('such as /v1/x; may end in *'),
    price: price.describe('USD, such as 0.05'),
    mode: z.enum(['fixed', 'metered']).default('fixed'),
    description: z.string().max(300).optional(),
    sku: z
      .string()
      .regex(/^[A-Za-z0-9._:-]{1,64}$/, 'is up to 64 letters, digits and ._:-')
      .optional(),
    pricingVersion: z.number().int().min(0).optional(),
    checkBeforePay: z.boolean().optional(),
    slow: z.boolean().optional().describe('settle first, refund if the work fails'),
    live: z
      .boolean()
      .optional()
      .describe('a WebSocket that is charged while it is open: hold the price, return what was not used'),
    perEvent: price
      .optional()
      .describe('USD of each event of a text/event-stream; the price is the most that one stream costs'),
    tool: z
      .string()
      .regex(/^[A-Za-z0-9_./-]{1,128}$/, 'is up to 128 letters, digits and _./-')
      .optional()
      .describe('name of a tool: the path is an MCP endpoint, and calls of this tool have the price'),
    input: inputSchema.optional().describe('what a call takes, for indexers and /openapi.json'),
    output: outputSchema.optional().describe('what it answers'),
    page: z
      .string()
      .max(512)
      .regex(/^\/[A-Za-z0-9_~./-]*$/, 'starts with "/" and has plain segments')
      .refine(hasPlainSegments, 'has no empty, "." or ".." segments')
      .optional()
      .describe('path of a page of this deployment that browsers get with the 402, such as /pay-me.html'),
    solana: z
      .string()
      .regex(SOLANA_ADDRESS, 'is an address of Solana')
      .optional()
      .describe('your address on Solana: where the host takes payments there, callers may pay the price to it'),
    listed: z.boolean().optional().describe('false: only this deployment’s own documents name it, not the host’s'),
  })
  .transform(({ method, ...route }) => ({ method: method ?? (route.tool === undefined ? '*' : 'POST'), ...route }))
  .refine(({ tool, method }) => tool === undefined || method === 'POST', {
    path: ['method'],
    message: 'is POST for a tool',
  })
  .refine(({ tool, path }) => tool === undefined || !path.endsWith('*'), {
    path: ['path'],
    message: 'is the one path of the MCP endpoint',
  })
  .refine(
    ({ tool, live, page, checkBeforePay, perEvent }) =>
      tool === undefined || !(live || page || checkBeforePay || perEvent !== undefined),
    { path: ['tool'], message: 'goes with none of live, page, perEvent and checkBeforePay' },
  )
  .refine(
    ({ perEvent, price: most, mode, live }) =>
      perEvent === undefined || (mode === 'metered' && !live && parseUsd(perEvent) <= parseUsd(most)),
    { path: ['perEvent'], message: 'is at most the price, of a route with "mode": "metered" and without live' },
  )
  .refine(({ live, mode, method }) => !live || (mode === 'metered' && method === 'GET'), {
    path: ['live'],
    message: 'is for routes with "mode": "metered" and "method": "GET"',
  });

export const paidRoutesSchema = z.array(paidRoute).max(100, 'at most 100 paid routes');

/**
 * @param value what the tenant sent
 * @param pointer JSON pointer of it in the request
 * @throws Problem `invalid_field` that names every bad field
 */
export function parsePaidRoutes(value: unknown, pointer = '/paidRoutes'): PaidRoute[] {
  const parsed = paidRoutesSchema.safeParse(value);
  if (!parsed.success) {
    const errors: FieldError[] = parsed.error.issues.map((issue) => ({
      pointer: [pointer, ...issue.path.map(String)].join('/'),
      detail: issue.message,
    }));
    throw new Problem('invalid_field', `paidRoutes is not acceptable: ${errors[0]?.pointer} ${errors[0]?.detail}.`, {
      errors,
    });
  }
  const seen = new Set<string>();
  const tools = new Map<string, boolean>();
  for (const [index, route] of parsed.data.entries()) {
    // Paths are compared without their case and the slash at their end.
    const place = `${route.method} ${route.path.toLowerCase().replace(/(?<=.)\/$/, '')}`;
    const { tool } = route;
    // Whole, or by tools.
    const other = tools.get(place) ?? tool !== undefined;
    if (other !== (tool !== undefined)) {
      const errors = [{ pointer: `${pointer}/${index}`, detail: `${place} has a price as a whole, and for tools` }];
      throw new Problem('invalid_field', `paidRoutes has ${place} both as a whole and for tools; keep one.`, {
        errors,
      });
    }
    tools.set(place, other);
    const key = tool === undefined ? place : `${place} ${tool.toLowerCase()}`;
    if (seen.has(key)) {
      const errors = [{ pointer: `${pointer}/${index}`, detail: `${key} is there twice` }];
      throw new Problem('invalid_field', `paidRoutes has ${key} twice; keep one.`, { errors });
    }
    seen.add(key);
  }
  const routes = parsed.data.toSorted(bySpecificity);
  for (const [index, { page }] of parsed.data.entries()) {
    if (page === undefined || matchPaidRoute(routes, 'GET', page) === undefined) continue;
    const errors = [{ pointer: `${pointer}/${index}/page`, detail: 'has a price itself' }];
    throw new Problem('invalid_field', `The page ${page} of paidRoutes has a price itself; name a free path.`, {
      errors,
    });
  }
  return routes;
}

/** Exact paths before prefixes, longer before shorter, named methods before `*`: the first match is the closest. */
function bySpecificity(a: PaidRoute, b: PaidRoute): number {
  return (
    Number(a.path.endsWith('*')) - Number(b.path.endsWith('*')) ||
    b.path.length - a.path.length ||
    Number(a.method === '*') - Number(b.method === '*')
  );
}

/**
 * @param tenantPath raw path and query as the handler sees them
 * @throws Problem `bad_request` for a path that falls under several routes, depending on who reads it
 */
export function findPaidRoute(routes: readonly PaidRoute[], method: string, tenantPath: string): PaidRoute | undefined {
  const found = matchPaidRoute(routes, method, tenantPath);
  if (found === 'ambiguous')
    throw new Problem('bad_request', 'The path can be read in several ways; send it in its plain form.');
  return found;
}

/**
 * As `findPaidRoute`, for a request whose handler may read its method from another field or from the query.
 * @throws Problem `bad_request` where that method has another price: the caller would decide what was paid for
 */
export function findRouteOf(routes: readonly PaidRoute[], request: Request, tenantPath: string): PaidRoute | undefined {
  const route = findPaidRoute(routes, request.method, tenantPath);
  const overrides = OVERRIDE_FIELDS.map((name) => request.headers.get(name) ?? '');
  for (const method of overridingMethods(overrides, tenantPath)) {
    const meant = findPaidRoute(routes, method, tenantPath);
    if (meant && meant !== route) {
      throw new Problem(
        'bad_request',
        `${method} has a price of its own here; send the request with that method, not as an override.`,
      );
    }
  }
  return route;
}

/** The methods under which a path has a price. @throws as `findPaidRoute` */
export function pricedMethods(routes: readonly PaidRoute[], tenantPath: string): string[] {
  const methods = [...new Set(routes.map(({ method }) => method))];
  return methods.filter((method) =>
    findPaidRoute(
      routes.filter((each) => each.method === method),
      method,
      tenantPath,
    ),
  );
}

/**
 * What the edge has to hand to the toll: the paid routes, and POST on the path of every metered one, because session
 * clients send top-ups and closings there whatever the route's own method is, and OPTIONS on every path, which the
 * host answers itself. The toll lets other POSTs pass free. Where tools have prices, every body may be a call.
 */
export function tollRoutes(
  routes: readonly Pick<PaidRoute, 'method' | 'path' | 'mode' | 'tool'>[],
): { method: string; path: string }[] {
  const management = routes
    .filter((route) => route.mode === 'metered' && route.method !== '*' && route.method !== 'POST')
    .map((route) => ({ method: 'POST', path: route.path }));
  const options = routes.map(({ path }) => ({ method: 'OPTIONS', path }));
  const bodies = routes.flatMap(({ path, tool }) => (tool === undefined ? [] : [{ method: WITH_BODY, path }]));
  return [...routes.map(({ method, path }) => ({ method, path })), ...management, ...options, ...bodies];
}

export function routeName({ method, path, tool }: PaidRoute): string {
  return tool === undefined ? `${method} ${path}` : `${method} ${path} ${tool}`;
}
