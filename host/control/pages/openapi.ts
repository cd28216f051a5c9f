/**
 * GET /openapi.json: OpenAPI 3.1 from the endpoint table. Paid operations declare their 402 and carry `x-payment-info`
 * (the discovery extension that MPP clients read; see mppx/discovery).
 */

import type { OfferInfo, Payments } from '../../payments/types.ts';
import { formatUsd, ZERO } from '../../shared/money.ts';
import type { BaseCall, Endpoint, JsonSchema } from '../endpoint.ts';
import { type Page, textPage } from './page.ts';

export interface OpenApiDeps {
  endpoints: Endpoint[];
  payments: Payments;
  publicUrl: string;
  version: string;
}

/** What every paid operation takes; x402 is only told of, because not every network has it. */
export const PAYMENT_SCHEME: JsonSchema = {
  type: 'http',
  scheme: 'Payment',
  description:
    'The credential that answers a challenge of the 402: https://mpp.dev. Or PAYMENT-SIGNATURE of x402, or X-PAYMENT of x402 v1.',
};

const SECURITY: Record<Endpoint['access'], JsonSchema[]> = {
  paid: [{ payment: [] }],
  owner: [{ payment: [] }, { ownerToken: [] }],
  operator: [{ operatorToken: [] }],
  public: [],
};

const problem = { $ref: '#/components/schemas/Problem' };

export function openApiPage(deps: OpenApiDeps): Page {
  return {
    path: '/openapi.json',
    render: () => textPage(JSON.stringify(openApiDocument(deps), null, 2), 'application/json'),
  };
}

export function openApiDocument({ endpoints, payments, publicUrl, version }: OpenApiDeps): JsonSchema {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Turnpike',
      version,
      summary: 'Deploy HTTP handlers, pay per use over HTTP 402.',
      description: `How to call and pay everything in plain text: ${publicUrl}/llms.txt`,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: publicUrl }],
    'x-service-info': {
      categories: ['compute', 'hosting'],
      docs: { apiReference: `${publicUrl}/docs`, homepage: `${publicUrl}/`, llms: `${publicUrl}/llms.txt` },
    },
    paths: pathsOf(endpoints, payments),
    components: {
      securitySchemes: {
        payment: PAYMENT_SCHEME,
        ownerToken: { type: 'http', scheme: 'bearer', description: 'From POST /_admin/session/{slug}.' },
        deployKey: { type: 'http', scheme: 'bearer', description: 'From POST /_admin/keys.' },
      },
      schemas: {
        Problem: PROBLEM,
      },
    },
  };
}

const PROBLEM: JsonSchema = {
  type: 'object',
  description: 'RFC 9457 problem document',
  required: ['type', 'title', 'status', 'code', 'detail'],
  properties: {
    type: { type: 'string', format: 'uri' },
    title: { type: 'string' },
    status: { type: 'integer' },
    code: { type: 'string', description: 'Stable; match on this.' },
    detail: { type: 'string', description: 'What to do next.' },
    requestId: { type: 'string' },
    errors: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          pointer: { type: 'string' },
          detail: { type: 'string' },
          file: { type: 'string' },
          line: { type: 'integer' },
          column: { type: 'integer' },
        },
      },
    },
  },
};

/** The operator's API, which is not paid. @param origin at which it was asked */
export function operatorDocument(
  endpoints: readonly Endpoint<BaseCall>[],
  origin: string,
  version: string,
): JsonSchema {
  return {
    openapi: '3.1.0',
    info: { title: 'Turnpike: operator', version, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: origin }],
    paths: pathsOf(endpoints),
    components: {
      securitySchemes: {
        operatorToken: { type: 'http', scheme: 'bearer', description: 'The token that the first start printed.' },
      },
      schemas: { Problem: PROBLEM },
    },
  };
}

/** @param payments where some are paid */
function pathsOf(
  endpoints: readonly Endpoint<never>[],
  payments?: Payments,
): Record<string, Record<string, JsonSchema>> {
  const paths: Record<string, Record<string, JsonSchema>> = {};
  for (const endpoint of endpoints) {
    const path = endpoint.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [endpoint.method.toLowerCase()]: operation(endpoint, payments) };
  }
  return paths;
}

function operation(endpoint: Endpoint<never>, payments: Payments | undefined): JsonSchema {
  const parameters = [...endpoint.path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
    // Clients that try operations out put it into the path.
    example: name === 'slug' ? 'hello' : 'api.example.com',
  }));
  const query = Object.entries(endpoint.query ?? {}).map(([name, description]) => ({
    name,
    in: 'query',
    description,
    schema: { type: 'string' },
  }));
  const offers = offersOf(endpoint, payments);
  return {
    operationId: operationId(endpoint),
    summary: endpoint.summary,
    description: endpoint.description,
    ...(parameters.length + query.length > 0 ? { parameters: [...parameters, ...query] } : {}),
    ...(endpoint.body
      ? {
          requestBody: {
            required: endpoint.body.required,
            content: { 'application/json': { schema: endpoint.body.schema } },
          },
        }
      : {}),
    security: [...SECURITY[endpoint.access], ...(endpoint.keyActions ? [{ deployKey: [] }] : [])],
    ...(offers.length > 0
      ? { 'x-payment-info': paymentInfo(offers, { price: formatUsd(endpoint.price ?? ZERO), mode: 'fixed' }) }
      : {}),
    responses: {
      ...Object.fromEntries(
        Object.entries(endpoint.responses).map(([status, text]) => [status, response(status, text)]),
      ),
      ...(endpoint.access === 'paid' || endpoint.access === 'owner'
        ? { 402: response('402', paymentText(endpoint)) }
        : {}),
      default: response('default', 'Any other error'),
    },
  };
}

function offersOf(endpoint: Endpoint<never>, payments: Payments | undefined): OfferInfo[] {
  if (endpoint.access !== 'paid' || endpoint.price === undefined || !payments) return [];
  return payments.offers(endpoint.price, { mode: 'fixed', description: endpoint.summary });
}

/** What MPP's clients (`offers`; mppx/discovery) and x402's indexers (`protocols`, `price`; x402scan) read. */
export function paymentInfo(
  offers: readonly OfferInfo[],
  { price, mode }: { price: string; mode: 'fixed' | 'metered' },
): JsonSchema {
  const protocols = [...new Set(offers.map(({ method }) => (method === 'x402' ? 'x402' : 'mpp')))];
  return {
    offers,
    protocols,
    price:
      mode === 'fixed'
        ? { mode: 'fixed', currency: 'USD', amount: price }
        : { mode: 'dynamic', currency: 'USD', min: '0', max: price },
  };
}

function paymentText(endpoint: Endpoint<never>): string {
  return endpoint.access === 'paid'
    ? 'Payment is required: WWW-Authenticate: Payment (MPP) and PAYMENT-REQUIRED (x402)'
    : 'A zero-amount proof of the owner wallet is required: WWW-Authenticate: Payment (MPP), or sign-in-with-x in PAYMENT-REQUIRED (x402)';
}

function response(status: string, description: string): JsonSchema {
  const failed = status === 'default' || Number(status) >= 400;
  return {
    description,
    content: failed
      ? { 'application/problem+json': { schema: problem } }
      : { 'application/json': { schema: { type: 'object' } } },
  };
}

function operationId(endpoint: Endpoint<never>): string {
  const words = endpoint.path.split('/').filter((part) => part && part !== '_admin' && !part.startsWith(':'));
  const own = words.length > 0 ? words : ['deployment'];
  // What is of a wallet, beside what is of one deployment.
  const all = endpoint.path === '/_admin/session' ? ['wallet'] : [];
  return [endpoint.method.toLowerCase(), ...own, ...all].join('-');
}
