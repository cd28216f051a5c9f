/**
 * What an endpoint is. Each file in endpoints/ makes one; the table of them (routes.ts) is served by app.ts and is
 * also what /openapi.json, /llms.txt and /docs are generated from.
 */
import type { EdgeContext } from '../shared/contracts.ts';
import type { Money } from '../shared/money.ts';

export interface Call {
  request: Request;
  context: EdgeContext;
  /** Values of the `:name` parts of the path, decoded. */
  params: Record<string, string>;
}

/** A JSON Schema (2020-12), as OpenAPI 3.1 takes it. */
export type JsonSchema = { [keyword: string]: unknown };

export interface Endpoint {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** `/_admin/get/:slug` */
  path: string;
  /** `paid`: 402 first; `owner`: a zero-amount proof of the owner's wallet; `public`: anybody. */
  access: 'paid' | 'owner' | 'public';
  /** Price of a paid endpoint. */
  price?: Money;
  summary: string;
  /** Markdown, a few sentences: what goes in, what comes out. */
  description: string;
  body?: { schema: JsonSchema; required: boolean };
  /** Status -> what it means. 402 and 5xx are added by the generator. */
  responses: Record<string, string>;
  handle(call: Call): Promise<Response>;
}

/** The members of the body's schema, with what they hold; none where the endpoint takes no body. */
export function bodyFields({ body }: Endpoint): { name: string; description: string }[] {
  const properties = (body?.schema.properties ?? {}) as Record<string, { description?: string }>;
  return Object.entries(properties).map(([name, { description = '' }]) => ({ name, description }));
}

export function json(body: unknown, status = 200, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/json; charset=utf-8', 'cache-control': 'no-store', ...headers },
  });
}
