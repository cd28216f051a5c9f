/** JSON Schemas of request bodies, for /openapi.json. The checks themselves are in deployment-input.ts. */
import { BINDINGS } from '../bindings/index.ts';
import { type JsonSchema, jsonSchema } from './endpoint.ts';

const properties: Record<string, JsonSchema> = {
  code: { type: 'string', description: 'One JavaScript or TypeScript module with a default export that has fetch().' },
  modules: {
    type: 'object',
    description: 'Module name -> source text, or {"base64": …} for bytes (.wasm, .bin). Use with main.',
    additionalProperties: {
      oneOf: [{ type: 'string' }, { type: 'object', properties: { base64: { type: 'string' } }, required: ['base64'] }],
    },
  },
  main: { type: 'string', description: 'The entry among modules, such as index.ts.' },
  secrets: {
    type: 'object',
    additionalProperties: { type: 'string' },
    description: 'Name -> value; env.NAME in the handler. Never shown again.',
  },
  bindings: {
    type: 'object',
    description: `${BINDINGS.map(({ key, env }) => `${key}: env.${env}`).join(', ')}; such as {"kv":true}.`,
    properties: Object.fromEntries(BINDINGS.map(({ key, settings }) => [key, jsonSchema(settings)])),
    additionalProperties: false,
  },
  compatibilityDate: {
    type: 'string',
    format: 'date',
    description: 'YYYY-MM-DD: behaviour of the runtime as of this day.',
  },
  compatibilityFlags: { type: 'array', items: { type: 'string' }, description: 'Flags of workerd by name.' },
  crons: {
    type: 'array',
    items: { type: 'string' },
    description:
      'Five-field cron expressions, UTC; run scheduled(). Two of a deployment begin at a time; others wait until one has ended or has run for 30 seconds.',
  },
  paidRoutes: {
    type: 'array',
    description:
      'Routes that cost money: {"method", "path", "price"} each, such as {"method":"POST","path":"/v1/x","price":"0.05"}; with "mode":"metered" the handler says in x-charge what it charges, at most the price.',
    items: {
      type: 'object',
      required: ['method', 'path', 'price'],
      properties: {
        method: { type: 'string' },
        path: { type: 'string' },
        price: { type: 'string', description: 'USD, such as 0.05' },
        mode: { enum: ['fixed', 'metered'] },
        description: { type: 'string' },
        sku: { type: 'string' },
        pricingVersion: { type: 'integer' },
        checkBeforePay: { type: 'boolean' },
        slow: { type: 'boolean', description: 'settle first, refund if the work fails' },
      },
    },
  },
  payTo: { type: 'string', description: 'Address that receives the revenue of paid routes; default: the owner.' },
  notify: { type: ['string', 'null'], format: 'uri', description: 'Called before the deployment expires.' },
};

const slug: JsonSchema = {
  type: 'string',
  pattern: '^[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])$',
  description: 'The name in the URL: 3 to 40 characters a-z, 0-9 and -.',
};

export const deployBodySchema: JsonSchema = {
  type: 'object',
  required: ['slug'],
  anyOf: [{ required: ['code'] }, { required: ['modules', 'main'] }],
  properties: { slug, ...properties },
  additionalProperties: false,
  examples: [{ slug: 'hello', code: "export default { fetch: () => new Response('hi') }" }],
};

export const updateBodySchema: JsonSchema = {
  type: 'object',
  minProperties: 1,
  properties: {
    ...properties,
    secretChanges: {
      type: 'object',
      additionalProperties: { type: ['string', 'null'] },
      description: 'Sets single secrets; null removes one. Not beside secrets.',
    },
  },
  additionalProperties: false,
};
