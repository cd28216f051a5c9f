/** A tenant's /openapi.json, made from its paid routes, for tenants whose handler has none. */
import type { PaidRoute, Payments } from '../../payments/types.ts';
import type { Deployment } from '../../registry/schema/deployments.ts';
import type { EdgeContext } from '../../shared/contracts.ts';
import { parseUsd } from '../../shared/money.ts';
import type { JsonSchema } from '../endpoint.ts';
import { tollView } from '../toll-view.ts';
import { FOR_SALE_PATH, forSale } from './for-sale.ts';
import { PAYMENT_SCHEME, paymentInfo } from './openapi.ts';

const OPENAPI_PATH = '/openapi.json';
/** Edges hand over `GET` of these of tenants that have paid routes. */
export const DESCRIPTIONS = [OPENAPI_PATH, FOR_SALE_PATH];

/** The description that is asked for. */
export function describedPath(request: { method?: string | undefined }, context: EdgeContext): string | undefined {
  if (request.method !== 'GET') return undefined;
  const path = (context.tenantPath ?? '').split('?')[0];
  return DESCRIPTIONS.find((each) => each === path);
}

/** @param path one of `DESCRIPTIONS` @param base URL of the tenant without a trailing slash */
export function tenantDescription(path: string, deployment: Deployment, payments: Payments, base: string): object {
  if (path === FOR_SALE_PATH) return forSale(tollView(deployment).paidRoutes, base);
  return tenantOpenApi(deployment, payments, base);
}

function tenantOpenApi(deployment: Deployment, payments: Payments, base: string): JsonSchema {
  const paths: Record<string, Record<string, JsonSchema>> = {};
  const view = tollView(deployment);
  for (const route of view.paidRoutes) {
    const tools = toolsAt(view.paidRoutes, route);
    // All tools of an MCP endpoint are called at one path, which is described once.
    if (tools.length > 0 && tools[0] !== route) continue;
    const path = route.path.endsWith('*') ? `${route.path.slice(0, -1)}{rest}` : route.path;
    const offers = payments
      .offers(parseUsd(route.price), {
        mode: route.mode,
        payTo: view.payTo,
        ...(route.solana === undefined ? {} : { payToSolana: route.solana }),
        ...(route.perEvent === undefined ? {} : { perEvent: route.perEvent }),
        ...(route.description ? { description: route.description } : {}),
      })
      .map((offer) => ({
        ...offer,
        ...(route.sku ? { sku: route.sku } : {}),
        ...(route.pricingVersion === undefined ? {} : { pricingVersion: route.pricingVersion }),
      }));
    const methods = route.method === '*' ? ['get', 'post', 'put', 'patch', 'delete'] : [route.method.toLowerCase()];
    for (const method of methods) {
      paths[path] = {
        ...paths[path],
        [method]: {
          ...(tools.length > 0
            ? { summary: 'MCP endpoint with priced tools', description: tools.map(priceOfTool).join('\n') }
            : { summary: route.description || `${method.toUpperCase()} ${route.path}` }),
          ...parametersOf(path, route),
          security: [{ payment: [] }],
          'x-payment-info': paymentInfo(offers, route),
          ...bodyOf(method, route),
          responses: {
            200: { description: 'Paid and done', ...answerOf(route) },
            402: { description: `Costs ${route.mode === 'metered' ? 'at most ' : ''}${route.price} USD` },
          },
        },
      };
    }
  }
  return {
    openapi: '3.1.0',
    info: { title: deployment.slug, version: String(deployment.version) },
    servers: [{ url: base }],
    paths,
    components: { securitySchemes: { payment: PAYMENT_SCHEME } },
  };
}

function toolsAt(routes: readonly PaidRoute[], { tool, path }: PaidRoute): PaidRoute[] {
  return tool === undefined ? [] : routes.filter((each) => each.tool !== undefined && each.path === path);
}

function priceOfTool({ tool, mode, price, description }: PaidRoute): string {
  return `- ${tool}: ${mode === 'metered' ? 'at most ' : ''}${price} USD${description ? `, ${description}` : ''}`;
}

function parametersOf(path: string, { input }: PaidRoute): JsonSchema {
  const query = (input?.query ?? {}) as { properties?: Record<string, unknown>; required?: unknown };
  const required = Array.isArray(query.required) ? query.required : [];
  const parameters = [
    ...(path.endsWith('{rest}') ? [{ name: 'rest', in: 'path', required: true, schema: { type: 'string' } }] : []),
    ...Object.entries(query.properties ?? {}).map(([name, schema]) => ({
      name,
      in: 'query',
      ...(required.includes(name) ? { required: true } : {}),
      schema,
    })),
  ];
  return parameters.length > 0 ? { parameters } : {};
}

const TYPES = { json: 'application/json', 'form-data': 'multipart/form-data', text: 'text/plain' };

/** A message of JSON-RPC 2.0. */
const MESSAGE: JsonSchema = {
  type: 'object',
  properties: {
    jsonrpc: { const: '2.0' },
    id: { type: ['string', 'integer'] },
    method: { type: 'string' },
    params: { type: 'object' },
  },
  required: ['jsonrpc', 'method'],
};

function bodyOf(method: string, { input, tool }: PaidRoute): JsonSchema {
  if (tool !== undefined)
    return { requestBody: { required: true, content: { 'application/json': { schema: MESSAGE } } } };
  if (!input?.body || !['post', 'put', 'patch'].includes(method)) return {};
  const { body: schema, bodyType = 'json', example } = input;
  const content = { [TYPES[bodyType]]: { schema, ...(example?.body === undefined ? {} : { example: example.body }) } };
  return { requestBody: { required: true, content } };
}

function answerOf({ output }: PaidRoute): JsonSchema {
  if (output?.schema === undefined && output?.example === undefined) return {};
  const { type, schema, example } = output;
  const media = type.includes('/') ? type : type === 'text' ? 'text/plain' : `application/${type}`;
  return { content: { [media]: { ...(schema ? { schema } : {}), ...(example === undefined ? {} : { example }) } } };
}
