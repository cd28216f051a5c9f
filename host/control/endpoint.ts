/**
 * What an endpoint is. Each file in api/owner/ and api/operator/ makes one or a few; the two tables of them (routes.ts,
 * api/operator/index.ts) are served, and are what /openapi.json, /llms.txt and /docs are generated from.
 */
import { z } from 'zod';
import type { EdgeContext } from '../shared/contracts.ts';
import type { KeyAction } from '../shared/deploy-keys.ts';
import type { Money } from '../shared/money.ts';

export interface BaseCall {
  request: Request;
  /** Values of the `:name` parts of the path, decoded. */
  params: Record<string, string>;
  /** Of the endpoint that is called. */
  keyActions?: readonly KeyAction[] | undefined;
}

/** A call that came through an edge. */
export interface Call extends BaseCall {
  context: EdgeContext;
}

/** A JSON Schema (2020-12), as OpenAPI 3.1 takes it. */
export type JsonSchema = { [keyword: string]: unknown };

/** Owners and callers reach it through the edge; the operator at the operator's port and socket. */
export interface Endpoint<C extends BaseCall = Call> {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** `/_admin/get/:slug` */
  path: string;
  /** `paid`: 402 first; `owner`: a zero-amount proof of the owner's wallet; `operator`: its token; `public`: anybody. */
  access: 'paid' | 'owner' | 'operator' | 'public';
  /** A deploy key that has one of these actions may call an `owner` endpoint, too; without them it is closed to keys. */
  keyActions?: readonly KeyAction[];
  /** Price of a paid endpoint. */
  price?: Money;
  /** Name under which agents call it, at /mcp. */
  tool?: string;
  /** Parameters of the query, with what they hold. */
  query?: Record<string, string>;
  summary: string;
  /** Markdown, a few sentences: what goes in, what comes out. */
  description: string;
  body?: { readonly schema: JsonSchema; readonly required: boolean };
  /** Status -> what it means. 402 and 5xx are added by the generator. */
  responses: Record<string, string>;
  handle(call: C): Promise<Response>;
}

/** The members of the body's schema, with what they hold; none where the endpoint takes no body. */
export function bodyFields({ body }: Endpoint): { name: string; description: string }[] {
  const properties = (body?.schema.properties ?? {}) as Record<string, { description?: string }>;
  return Object.entries(properties).map(([name, { description = '' }]) => ({ name, description }));
}

/**
 * Describes a body by the schema that checks it: once somebody reads of it, because a start has better things to do.
 * @param more what is known of it beside that schema
 */
export function jsonBody(type: z.ZodType, required = true, more: JsonSchema = {}): NonNullable<Endpoint['body']> {
  let schema: JsonSchema | undefined;
  return {
    get schema() {
      schema ??= { ...jsonSchema(type), ...more };
      return schema;
    },
    required,
  };
}

export function jsonSchema(type: z.ZodType): JsonSchema {
  const { $schema, ...schema } = z.toJSONSchema(type, { io: 'input' });
  return schema;
}

export function json(body: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/json; charset=utf-8', 'cache-control': 'no-store', ...headers },
  });
}
