/** A tenant's /openapi.json, made from its paid routes, for tenants whose handler has none. */
import type { Payments } from '../../payments/types.ts';
import type { Deployment } from '../../registry/schema/deployments.ts';
import type { EdgeContext } from '../../shared/contracts.ts';
import { parseUsd } from '../../shared/money.ts';
import type { JsonSchema } from '../endpoint.ts';
import { tollView } from '../toll-view.ts';
import { PAYMENT_SCHEME } from './openapi.ts';

/** Edges hand over `GET /openapi.json` of tenants that have paid routes. */
export const OPENAPI_PATH = '/openapi.json';

export function asksForOpenApi(request: { method?: string | undefined }, context: EdgeContext): boolean {
  return request.method === 'GET' && (context.tenantPath ?? '').split('?')[0] === OPENAPI_PATH;
}

/** @param base URL of the tenant without a trailing slash */
export function tenantOpenApi(deployment: Deployment, payments: Payments, base: string): JsonSchema {
  const paths: Record<string, Record<string, JsonSchema>> = {};
  const view = tollView(deployment);
  for (const route of view.paidRoutes) {
    const path = route.path.endsWith('*') ? `${route.path.slice(0, -1)}{rest}` : route.path;
    const offers = payments
      .offers(parseUsd(route.price), {
        mode: route.mode,
        payTo: view.payTo,
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
          ...(route.description ? { summary: route.description } : {}),
          ...(path.endsWith('{rest}')
            ? { parameters: [{ name: 'rest', in: 'path', required: true, schema: { type: 'string' } }] }
            : {}),
          security: [{ payment: [] }],
          'x-payment-info': { offers },
          responses: {
            200: { description: 'Paid and done' },
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
