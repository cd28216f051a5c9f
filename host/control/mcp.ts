/**
 * POST /mcp: the host for agents, as a server of the Model Context Protocol. Each of its tools is an endpoint of the
 * endpoint table, called in this process with the very checks, proofs and payments of HTTP; `buy` calls what is for sale.
 * Calls are independent of each other: there are no sessions, and nothing is sent to who did not ask.
 */
import type { ToolPayments } from '../payments/types.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import {
  errorMessage,
  INVALID_PARAMS,
  INVALID_REQUEST,
  isFields,
  METHOD_NOT_FOUND,
  type Message,
  type MessageId,
  MOST_MESSAGE_BYTES,
  messagesOf,
  resultMessage,
  type ToolCall,
  type ToolResult,
  toolCallOf,
} from '../shared/mcp-message.ts';
import { formatUsd } from '../shared/money.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import { readBody } from '../shared/request-body.ts';
import { SLUG } from '../shared/slug.ts';
import { CONTEXT_HEADER } from './edge-context.ts';
import type { Endpoint, JsonSchema } from './endpoint.ts';

/** The newest first; which one a client speaks makes no difference here. */
const VERSIONS = ['2025-11-25', '2025-06-18', '2025-03-26'];
/** Of an answer that is shown to an agent. */
const MOST_ANSWER_BYTES = 1_048_576;

export interface McpOptions {
  endpoints: readonly Endpoint[];
  /** The application: what a request to the host or to one of its tenants is answered. */
  fetch(request: Request): Promise<Response> | Response;
  payments: { tools: ToolPayments };
  publicUrl: string;
  version: string;
}

interface Tool {
  name: string;
  description: string;
  inputSchema: JsonSchema;
  annotations?: JsonSchema;
  _meta?: JsonSchema;
  /** What is asked of the host. */
  request(args: Record<string, unknown>): { method: string; path: string; body?: string; slug?: string };
}

/** A message that wants an answer, and what it is answered with. */
interface Asked {
  options: McpOptions;
  tools: readonly Tool[];
  request: Request;
  context: EdgeContext;
  message: Message;
  id: MessageId;
}

export function mcpServer(options: McpOptions): (request: Request, context: EdgeContext) => Promise<Response> {
  const tools = [...options.endpoints.flatMap(endpointTool), buyTool()];
  return async (request, context) => {
    const body = await readBody(request, MOST_MESSAGE_BYTES, context.clientIp);
    const read = messagesOf(body);
    const [message] = read?.messages ?? [];
    if (!read || !message)
      throw new Problem('bad_request', 'Send a message of MCP: a JSON-RPC 2.0 object. /llms.txt tells the rest.');
    if (read.batch) return json(errorMessage(null, INVALID_REQUEST, 'Send each message in a request of its own.'));
    // Notifications: there is nothing to be told of.
    if (message.id === undefined) return new Response(null, { status: 202 });
    return json(await answer({ options, tools, request, context, message, id: message.id }));
  };
}

async function answer(asked: Asked): Promise<string> {
  const { options, tools, message, id } = asked;
  switch (message.method) {
    case 'initialize': {
      const version = message.params.protocolVersion;
      return resultMessage(id, {
        protocolVersion: VERSIONS.find((each) => each === version) ?? VERSIONS[0],
        capabilities: { tools: {} },
        serverInfo: { name: 'turnpike', title: 'Turnpike', version: options.version, websiteUrl: options.publicUrl },
        instructions: instructions(options.publicUrl),
      });
    }
    case 'ping':
      return resultMessage(id, {});
    case 'tools/list':
      return resultMessage(id, { tools: tools.map(({ request: _, ...tool }) => tool) });
    case 'tools/call':
      return await callTool(asked);
    default:
      return errorMessage(id, METHOD_NOT_FOUND, `${message.method} is nothing that this server knows.`);
  }
}

async function callTool({ options, tools, request, context, message, id }: Asked): Promise<string> {
  const { fetch, payments } = options;
  let call: ToolCall | undefined;
  let answered: Response;
  try {
    call = toolCallOf(message);
    const tool = tools.find(({ name }) => name === call?.name);
    if (!call || !tool)
      return errorMessage(id, INVALID_PARAMS, `There is no tool ${call?.name ?? ''}; see tools/list.`);
    const { headers } = payments.tools.credentialsOf(call.meta);
    const asked = tool.request(call.arguments);
    answered = await fetch(inner(request, context, asked, headers));
  } catch (error) {
    const problem = asProblem(error);
    if (problem.isFault) throw error;
    answered = problem.toResponse(context.requestId);
  }
  const type = answered.headers.get('content-type') ?? '';
  if (answered.ok && !/^text\/|json|xml|javascript|urlencoded/i.test(type)) answered = await described(answered, type);
  return await payments.tools.toolAnswer(id, call?.meta ?? {}, await bounded(answered), textResult);
}

/** @param headers of the credentials; without them, what the whole request was authorized with counts */
function inner(
  { headers: outer, signal }: Request,
  context: EdgeContext,
  { method, path, body, slug }: ReturnType<Tool['request']>,
  credentials: Record<string, string>,
): Request {
  const origin = `${context.proto}://${context.host}`;
  const own: EdgeContext =
    slug === undefined ? context : { ...context, slug, prefix: `/${slug}`, tenantPath: path, via: 'path' };
  const headers = new Headers({ [CONTEXT_HEADER]: Buffer.from(JSON.stringify(own)).toString('base64url') });
  const bearer = outer.get('authorization');
  // A tenant is not shown with what its caller deploys.
  if (bearer !== null && slug === undefined) headers.set('authorization', bearer);
  for (const [name, value] of Object.entries(credentials)) headers.set(name, value);
  if (body !== undefined) {
    headers.set('content-type', 'application/json');
    headers.set('content-length', String(Buffer.byteLength(body)));
  }
  const url = `${origin}${slug === undefined ? '' : `/${slug}`}${path}`;
  return new Request(url, { method, headers, signal, ...(body === undefined ? {} : { body }) });
}

function textResult(text: string): ToolResult {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Text.
  }
  return { content: [{ type: 'text', text }], ...(isFields(value) ? { structuredContent: value } : {}) };
}

/** What an agent cannot read is named instead, with the headers: it was paid for, and the receipt is there. */
async function described(answered: Response, type: string): Promise<Response> {
  let bytes = 0;
  for await (const part of answered.body ?? []) {
    bytes += part.length;
    if (bytes > MOST_ANSWER_BYTES) break;
  }
  const text =
    bytes === 0
      ? ''
      : `${bytes > MOST_ANSWER_BYTES ? 'More than ' : ''}${bytes} bytes of ${type || 'an unknown type'}; ask for them over HTTP.`;
  const headers = new Headers(answered.headers);
  headers.delete('content-length');
  return new Response(text, { status: 200, headers });
}

/** Reads no more than an agent can use. */
async function bounded(answered: Response): Promise<Response> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of answered.body ?? []) {
    const room = MOST_ANSWER_BYTES - size;
    parts.push(part.subarray(0, room));
    size += part.length;
    if (size > MOST_ANSWER_BYTES) break;
  }
  const cut = size > MOST_ANSWER_BYTES ? `\n… cut after ${MOST_ANSWER_BYTES} bytes; ask for the rest over HTTP.` : '';
  const headers = new Headers(answered.headers);
  headers.delete('content-length');
  return new Response(Buffer.concat(parts).toString('utf8') + cut, { status: answered.status, headers });
}

function endpointTool(endpoint: Endpoint): Tool[] {
  const { tool: name, method, path, access, price, summary, description, body, query = {} } = endpoint;
  if (name === undefined) return [];
  const inPath = [...path.matchAll(/:(\w+)/g)].map(([, parameter = '']) => parameter);
  const { properties = {}, required = [], ...rest } = body?.schema ?? {};
  const text = { type: 'string' };
  const how = { owner: " Takes a proof of the owner's wallet.", paid: '', public: '', operator: '' }[access];
  return [
    {
      name,
      description: `${summary}. ${description}${how}`,
      inputSchema: {
        ...rest,
        type: 'object',
        properties: {
          ...Object.fromEntries(inPath.map((parameter) => [parameter, text])),
          ...Object.fromEntries(
            Object.entries(query).map(([parameter, about]) => [parameter, { ...text, description: about }]),
          ),
          ...(properties as object),
        },
        required: [...inPath, ...(required as string[])],
      },
      annotations: { title: summary, readOnlyHint: method === 'GET', destructiveHint: method === 'DELETE' },
      ...(price === undefined
        ? {}
        : { _meta: { 'dev.turnpike/price': { amount: formatUsd(price), currency: 'USD', mode: 'fixed' } } }),
      request(args) {
        const filled = path.replace(/:(\w+)/g, (_, parameter: string) => segmentOf(args, parameter));
        const asked = Object.keys(query).filter((parameter) => args[parameter] !== undefined);
        const search = new URLSearchParams(
          Object.fromEntries(asked.map((parameter) => [parameter, textOf(args, parameter)])),
        ).toString();
        const fields = Object.entries(args).filter(
          ([field]) => !inPath.includes(field) && !Object.hasOwn(query, field),
        );
        return {
          method,
          path: search === '' ? filled : `${filled}?${search}`,
          ...(body ? { body: JSON.stringify(Object.fromEntries(fields)) } : {}),
        };
      },
    },
  ];
}

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

function buyTool(): Tool {
  return {
    name: 'buy',
    description:
      'Calls an address of a deployment on this host, and pays for it where it costs something. What is for sale is in ' +
      '/llms.txt and /.well-known/x402; the first call without a payment tells the price.',
    inputSchema: {
      type: 'object',
      properties: {
        slug: { type: 'string', description: 'the deployment' },
        path: { type: 'string', description: 'path and query below it, such as /v1/report?day=1' },
        method: { type: 'string', enum: METHODS, default: 'GET' },
        body: { description: 'JSON of the request' },
      },
      required: ['slug', 'path'],
    },
    annotations: { title: 'Buy', openWorldHint: true },
    request(args) {
      const slug = textOf(args, 'slug');
      const path = textOf(args, 'path');
      const method = args.method === undefined ? 'GET' : textOf(args, 'method').toUpperCase();
      if (!SLUG.test(slug)) throw new Problem('bad_request', `${slug} is not the name of a deployment.`);
      if (!/^\/[\x21-\x7e]*$/.test(path) || path.includes('#'))
        throw new Problem('bad_request', 'path starts with "/" and has visible ASCII characters alone, without "#".');
      if (!METHODS.includes(method)) throw new Problem('bad_request', `method is one of ${METHODS.join(', ')}.`);
      const body = method === 'GET' || args.body === undefined ? undefined : JSON.stringify(args.body);
      return { method, path, slug, ...(body === undefined ? {} : { body }) };
    },
  };
}

/** @throws Problem `bad_request`, also for what would lead to another endpoint */
function segmentOf(args: Record<string, unknown>, name: string): string {
  const text = textOf(args, name);
  if (text === '.' || text === '..') throw new Problem('bad_request', `The argument ${name} is not "${text}".`);
  return encodeURIComponent(text);
}

/** @throws Problem `bad_request` */
function textOf(args: Record<string, unknown>, name: string): string {
  const value = args[name];
  if (typeof value === 'number') return String(value);
  if (typeof value !== 'string' || value === '') throw new Problem('bad_request', `The argument ${name} is missing.`);
  return value;
}

function instructions(publicUrl: string): string {
  return (
    `A host for HTTP handlers that are paid per call. Tools that cost money, or that take a proof of the owner's wallet ` +
    `(a payment of nothing), answer with what they want first; a client with a wallet sends it in _meta, by MPP ` +
    `(org.paymentauth/credential) or x402 (x402/payment). ${publicUrl}/llms.txt has everything in plain text.`
  );
}

function json(text: string): Response {
  return new Response(text, { headers: { 'content-type': 'application/json', 'cache-control': 'no-store' } });
}
