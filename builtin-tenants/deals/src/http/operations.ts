/**
 * The operations of the service in one table: what is called, what it costs, what it takes and answers. Everything that
 * the service says of itself (llms.txt, openapi.json, auth.md, docs) is generated from it.
 */
import * as z from 'zod/mini';
import { querySchema, SORTS } from '../prices/query.ts';
import { EVENTS, watchSchema } from '../watches/watch.ts';

export type JsonSchema = Record<string, unknown>;

export interface Meter {
  slug: string;
  /** USD. The platform's operator may change it: the 402 states the price of the moment. */
  priceUsd: string;
  /** micro-USD. */
  amount: string;
  /** Sold from prepaid credit alone, never per call. */
  creditOnly: boolean;
  description: string;
}

export const METERS: Record<'deal_query' | 'rules_read' | 'watch_created' | 'watch_day', Meter> = {
  deal_query: {
    slug: 'deal_query',
    priceUsd: '0.15',
    amount: '150000',
    creditOnly: false,
    description: 'one page of deals',
  },
  rules_read: {
    slug: 'rules_read',
    priceUsd: '0.05',
    amount: '50000',
    creditOnly: false,
    description: 'the scoring rules',
  },
  watch_created: {
    slug: 'watch_created',
    priceUsd: '0.25',
    amount: '250000',
    creditOnly: true,
    description: 'a watch and its first 24 hours',
  },
  watch_day: {
    slug: 'watch_day',
    priceUsd: '0.10',
    amount: '100000',
    creditOnly: true,
    description: 'each further 24 hours of a running watch',
  },
};

export interface Parameter {
  name: string;
  in: 'query' | 'path' | 'header';
  description: string;
  schema: JsonSchema;
}

export interface Operation {
  id: string;
  method: 'GET' | 'POST' | 'DELETE';
  /** Below {pay_url}; `{name}` for parts. */
  path: string;
  summary: string;
  description: string;
  /** What a call costs; none: free. */
  meter?: Meter;
  /** Needs an account at the pay platform. */
  account: boolean;
  parameters: Parameter[];
  body?: JsonSchema;
  /** An example of the path with a query, and of the body. */
  example: { path: string; body?: object };
  answers: Record<string, { description: string; schema?: JsonSchema }>;
}

const QUERY_TEXTS: Record<keyof typeof querySchema.shape, string> = {
  q: 'words that must all occur in the title',
  category: 'category as the source names it, without regard to case',
  merchant: 'merchant, without regard to case',
  gtin: 'GTIN-8, -12, -13 or -14',
  country: 'region of the price, ISO 3166-1 alpha-2',
  currency: 'ISO 4217; prices are never converted',
  max_price_minor: 'highest price in minor units of the currency; needs currency',
  min_discount_bps: 'lowest discount against the reference price, 1/100 %',
  min_score: '0 to 1000',
  min_confidence: '0 to 1000',
  at_low: 'only prices that were never observed lower (true), or only others (false)',
  availability: 'in_stock, out_of_stock, preorder or unknown',
};

const querySchemas = schemaOf(querySchema).properties as Record<string, JsonSchema>;

const object = (properties: JsonSchema, required: string[] = Object.keys(properties)): JsonSchema => ({
  type: 'object',
  required,
  properties,
});
const ref = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` });
const listOf = (items: JsonSchema): JsonSchema => ({ type: 'array', items });
const text: JsonSchema = { type: 'string' };
const time: JsonSchema = { type: 'string', format: 'date-time' };
const integer: JsonSchema = { type: 'integer' };
const nullable = (schema: JsonSchema): JsonSchema => ({ anyOf: [schema, { type: 'null' }] });
const ruleset = object({ version: integer, digest: text });

export const SCHEMAS: Record<string, JsonSchema> = {
  Problem: {
    description: 'RFC 9457 problem document',
    ...object({ type: text, title: text, status: integer, code: text, detail: text }),
  },
  Deal: {
    description: 'An offer whose price dropped below what the service itself observed before, with the evidence',
    ...object({
      id: text,
      revision: integer,
      offer: object({
        id: text,
        merchant: text,
        gtin: nullable(text),
        sku: nullable(text),
        category: nullable(text),
        variant: text,
        condition: { enum: ['new', 'used', 'refurbished'] },
        country: text,
      }),
      title: text,
      url: { type: 'string', format: 'uri' },
      price: object({ minor: integer, currency: text, exponent: integer }),
      reference: nullable(
        object({
          kind: { const: 'min_30d_before_drop' },
          minor: integer,
          from: time,
          to: time,
          days_observed: integer,
        }),
      ),
      discount_bps: integer,
      claimed_discount_bps: integer,
      at_low: { type: 'boolean' },
      score: integer,
      confidence: integer,
      tier: text,
      reasons: listOf(object({ id: text, points: integer })),
      facts: { type: 'object', additionalProperties: { type: ['integer', 'boolean'] } },
      ruleset,
      evidence: listOf(object({ source: text, url: text, observed_at: time, sha256: text })),
      availability: text,
      demo: { type: 'boolean' },
      status: { enum: ['active', 'ended'] },
      first_seen_at: time,
      last_verified_at: time,
      expires_at: time,
    }),
  },
  Watch: object(
    {
      id: text,
      state: { enum: ['running', 'suspended', 'paused'] },
      query: { type: 'object' },
      trigger: { type: 'object' },
      every_s: integer,
      delivery: { type: 'object' },
      created_at: time,
      paid_through: time,
      suspended_at: time,
      next_evaluation_at: nullable(time),
    },
    ['id', 'state', 'query', 'trigger', 'every_s', 'delivery', 'created_at', 'paid_through', 'next_evaluation_at'],
  ),
  Event: object(
    {
      id: text,
      type: { enum: [...EVENTS] },
      watch_id: text,
      sequence: integer,
      at: time,
      deal: { type: 'object' },
      previous_minor: integer,
    },
    ['id', 'type', 'watch_id', 'sequence', 'at', 'deal'],
  ),
};

export const OPERATIONS: Operation[] = [
  {
    id: 'find-deals',
    method: 'GET',
    path: '/v1/deals',
    summary: 'Deals that are verified by observed price history',
    description:
      'Every deal carries its reference price (the lowest of the 30 days before the drop), its score with the facts ' +
      'it was computed from, and evidence. A query that finds nothing is answered with an empty page, and one that is not acceptable with 400: both ' +
      'cost nothing.',
    meter: METERS.deal_query,
    account: false,
    parameters: [
      ...Object.entries(QUERY_TEXTS).map(
        ([name, description]): Parameter => ({ name, in: 'query', description, schema: querySchemas[name] ?? {} }),
      ),
      { name: 'since', in: 'query', description: 'only deals that changed at or after this time', schema: time },
      { name: 'sort', in: 'query', description: 'order of the deals', schema: { enum: [...SORTS], default: 'score' } },
      {
        name: 'limit',
        in: 'query',
        description: 'deals a page',
        schema: { type: 'integer', minimum: 1, maximum: 100, default: 50 },
      },
      {
        name: 'cursor',
        in: 'query',
        description: 'of the answer before; belongs to the very same parameters',
        schema: text,
      },
    ],
    example: { path: '/v1/deals?currency=EUR&min_discount_bps=1500' },
    answers: {
      200: {
        description: 'A page of deals',
        schema: object({ deals: listOf(ref('Deal')), cursor: text, ruleset }, ['deals', 'ruleset']),
      },
    },
  },
  {
    id: 'read-rules',
    method: 'GET',
    path: '/v1/rules',
    summary: 'The scoring rules, to recompute every score',
    description:
      'One versioned document in CEL with integers only: constants, gates, terms, tiers, inputs and test vectors. ' +
      'Its ETag is the digest that deals name; a request with If-None-Match of it is answered 304 and costs nothing.',
    meter: METERS.rules_read,
    account: false,
    parameters: [
      {
        name: 'version',
        in: 'query',
        description: 'an older version; the present one without it',
        schema: { type: 'integer', minimum: 1 },
      },
      { name: 'If-None-Match', in: 'header', description: 'the ETag that is known', schema: text },
    ],
    example: { path: '/v1/rules' },
    answers: {
      200: {
        description: 'The rules',
        schema: object({ version: integer, language: { const: 'cel' } }, ['version', 'language']),
      },
      304: { description: 'They are known' },
    },
  },
  {
    id: 'create-watch',
    method: 'POST',
    path: '/v1/watches',
    summary: 'Watch for deals, with events to a webhook or a feed',
    description:
      'Paid from credit: 0.25 USD for the first 24 hours, then 0.10 USD for each further 24 hours, in advance. A watch ' +
      'that credit does not cover is suspended and costs nothing; a top-up resumes it. The webhook_secret (Standard ' +
      'Webhooks) is shown in this answer alone.',
    meter: METERS.watch_created,
    account: true,
    parameters: [],
    body: schemaOf(watchSchema),
    example: {
      path: '/v1/watches',
      body: {
        query: { category: 'Kitchen', currency: 'EUR', min_discount_bps: 1_500 },
        trigger: { on: ['enter', 'new_low'], notify_initial: true },
        every_s: 900,
        delivery: { webhook: 'https://example.com/hook' },
      },
    },
    answers: {
      201: {
        description: 'The watch',
        schema: { allOf: [ref('Watch'), { type: 'object', properties: { webhook_secret: text } }] },
      },
    },
  },
  {
    id: 'list-watches',
    method: 'GET',
    path: '/v1/watches',
    summary: 'The watches of the account, and their events',
    description:
      'Free. With events_after (empty at first, then what the answer before said) the events of all watches come in ' +
      'the order in which they happened, at least once.',
    account: true,
    parameters: [
      { name: 'cursor', in: 'query', description: 'of the answer before', schema: text },
      { name: 'events_after', in: 'query', description: 'empty, or of the answer before', schema: text },
    ],
    example: { path: '/v1/watches?events_after=' },
    answers: {
      200: {
        description: 'Watches, and events if they were asked for',
        schema: object(
          { watches: listOf(ref('Watch')), cursor: text, events: listOf(ref('Event')), events_after: text },
          ['watches'],
        ),
      },
    },
  },
  {
    id: 'pause-watch',
    method: 'POST',
    path: '/v1/watches/{id}/pause',
    summary: 'Have a watch stand still',
    description:
      'Free and idempotent. Nothing is looked for and no further day is charged. The day that is paid goes on: it is neither refunded nor kept.',
    account: true,
    parameters: [{ name: 'id', in: 'path', description: 'of the watch', schema: text }],
    example: { path: '/v1/watches/wat_0000/pause' },
    answers: { 200: { description: 'The watch', schema: ref('Watch') } },
  },
  {
    id: 'resume-watch',
    method: 'POST',
    path: '/v1/watches/{id}/resume',
    summary: 'Have a paused watch go on',
    description:
      'Free and idempotent. What is left of the paid day is used; after it, the next day is charged within a minute, as of a watch that credit covers again.',
    account: true,
    parameters: [{ name: 'id', in: 'path', description: 'of the watch', schema: text }],
    example: { path: '/v1/watches/wat_0000/resume' },
    answers: { 200: { description: 'The watch', schema: ref('Watch') } },
  },
  {
    id: 'delete-watch',
    method: 'DELETE',
    path: '/v1/watches/{id}',
    summary: 'End a watch',
    description: 'Free, final and idempotent. What is paid is not refunded; nothing more is charged.',
    account: true,
    parameters: [{ name: 'id', in: 'path', description: 'of the watch', schema: text }],
    example: { path: '/v1/watches/wat_0000' },
    answers: { 204: { description: 'It is gone' } },
  },
];

/** How the operation that is paid by a meter is called, as the pay platform tells indexers. */
export function callOf(meterSlug: string): object {
  const operation = OPERATIONS.find(({ meter }) => meter?.slug === meterSlug);
  if (!operation) return {};
  const { parameters, body, example } = operation;
  const query = parameters.filter((parameter) => parameter.in === 'query');
  const properties = Object.fromEntries(query.map(({ name, schema }) => [name, schema]));
  // Of a query's values, indexers compare the types.
  const typed = ([name, value]: [string, string]) => [
    name,
    properties[name]?.type === 'integer' ? Number(value) : value,
  ];
  const asked = Object.fromEntries([...new URL(example.path, 'http://example').searchParams].map(typed));
  return {
    input: {
      ...(query.length > 0 ? { query: { type: 'object', properties } } : {}),
      ...(body ? { body } : {}),
      example: { ...(query.length > 0 ? { query: asked } : {}), ...(example.body ? { body: example.body } : {}) },
    },
    output: { type: 'json' },
  };
}

export function priceText({ meter }: Operation): string {
  if (!meter) return 'free';
  return meter.creditOnly ? `${meter.priceUsd} USD from credit` : `${meter.priceUsd} USD a call`;
}

function schemaOf(schema: z.ZodMiniType): JsonSchema {
  const { $schema: _, ...rest } = z.toJSONSchema(schema) as JsonSchema;
  return rest;
}
