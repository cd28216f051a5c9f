/**
 * How an indexer is told to call what is for sale: the `bazaar` extension of an x402 402 (x402 specification,
 * specs/extensions/bazaar.md), and the same for OpenAPI. Indexers check `info` against `schema` and list nothing that
 * does not fit.
 */
import { z } from 'zod';

/** Headers carry it, and callers refuse long ones: characters of JSON, for what goes in and for what comes out. */
const MAX_TEXT = 2_000;
const BODY_METHODS = ['POST', 'PUT', 'PATCH'];
const QUERY_METHODS = ['GET', 'HEAD', 'DELETE'];

type Schema = Record<string, unknown>;

const schema = z.record(z.string(), z.unknown()).superRefine((value, issues) => {
  if (/"\$(?:ref|id|dynamicRef)":"(?!#)/.test(JSON.stringify(value)))
    issues.addIssue({ code: 'custom', message: 'refers to another document; only "#…" may be referred to' });
});

const short = (value: unknown) => JSON.stringify(value).length <= MAX_TEXT;
const TOO_LONG = `has more than ${MAX_TEXT} characters as JSON; indexers get it in a header`;

export const inputSchema = z
  .strictObject({
    query: schema.optional().describe('JSON Schema of the parameters of the query, as an object'),
    body: schema.optional().describe('JSON Schema of the body'),
    bodyType: z.enum(['json', 'form-data', 'text']).optional(),
    example: z
      .strictObject({ query: z.record(z.string(), z.unknown()).optional(), body: z.unknown().optional() })
      .optional()
      .describe('a call that fits the schemas'),
  })
  .refine(short, TOO_LONG);

export const outputSchema = z
  .strictObject({
    type: z.string().max(64).default('json'),
    schema: schema.optional().describe('JSON Schema of the answer'),
    example: z.unknown().optional(),
  })
  .refine(short, TOO_LONG);

export type CallInput = z.infer<typeof inputSchema>;
export type CallOutput = z.infer<typeof outputSchema>;

/** What is known of how something is called. */
export interface CallShape {
  /** Name of a tool of an MCP endpoint. */
  tool?: string | undefined;
  description?: string | undefined;
  input?: CallInput | undefined;
  output?: CallOutput | undefined;
}

/** Members of a 402's `extensions`. */
export interface Discovery {
  bazaar: { info: Schema; schema: Schema };
}

const made = new WeakMap<CallShape, Map<string, Discovery | undefined>>();

/**
 * @param method of the call, upper case
 * @returns the same object for the same arguments; undefined for methods that no indexer lists
 */
export function discoveryOf(method: string, call: CallShape): Discovery | undefined {
  const known = made.get(call) ?? new Map<string, Discovery | undefined>();
  made.set(call, known);
  if (!known.has(method)) known.set(method, discovery(method, call));
  return known.get(method);
}

function discovery(method: string, call: CallShape): Discovery | undefined {
  if (call.tool !== undefined) return toolDiscovery(call.tool, call);
  const { input = {}, output } = call;
  const hasBody = BODY_METHODS.includes(method);
  if (!hasBody && !QUERY_METHODS.includes(method)) return undefined;
  const { query, body, bodyType = 'json', example } = input;
  const info: Schema = { type: 'http', method };
  const properties: Schema = {
    type: { type: 'string', const: 'http' },
    method: { type: 'string', enum: hasBody ? BODY_METHODS : QUERY_METHODS },
  };
  const required = ['type', 'method'];
  if (query || example?.query || !hasBody) {
    info.queryParams = example?.query ?? {};
    properties.queryParams = query ?? { type: 'object' };
    if (query) required.push('queryParams');
  }
  if (hasBody) {
    info.bodyType = bodyType;
    info.body = example?.body ?? (bodyType === 'text' ? '' : {});
    properties.bodyType = { type: 'string', enum: [bodyType] };
    properties.body = body ?? (bodyType === 'text' ? { type: 'string' } : { type: 'object' });
    required.push('bodyType', 'body');
  }
  return bazaar(info, properties, required, output);
}

/** `input.body` of the route is what the tool takes. */
function toolDiscovery(toolName: string, { description, input = {}, output }: CallShape): Discovery {
  const { body = { type: 'object' }, example } = input;
  const info: Schema = { type: 'mcp', toolName, transport: 'streamable-http', inputSchema: body };
  const properties: Schema = {
    type: { type: 'string', const: 'mcp' },
    toolName: { type: 'string' },
    transport: { type: 'string', enum: ['streamable-http'] },
    inputSchema: { type: 'object' },
  };
  if (description !== undefined) Object.assign(info, { description });
  if (description !== undefined) properties.description = { type: 'string' };
  if (example?.body !== undefined) Object.assign(info, { example: example.body });
  if (example?.body !== undefined) properties.example = { type: 'object' };
  return bazaar(info, properties, ['type', 'toolName', 'inputSchema'], output);
}

function bazaar(info: Schema, properties: Schema, required: string[], output: CallOutput | undefined): Discovery {
  const described = output && {
    info: { type: output.type, ...(output.example === undefined ? {} : { example: output.example }) },
    schema: {
      type: 'object',
      properties: { type: { type: 'string' }, example: output.schema ?? {} },
      required: ['type'],
    },
  };
  return {
    bazaar: {
      info: { input: info, ...(described ? { output: described.info } : {}) },
      schema: {
        $schema: 'https://json-schema.org/draft/2020-12/schema',
        type: 'object',
        properties: {
          input: { type: 'object', properties, required, additionalProperties: false },
          ...(described ? { output: described.schema } : {}),
        },
        required: ['input'],
      },
    },
  };
}
