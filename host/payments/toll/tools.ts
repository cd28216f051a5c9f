/**
 * Priced tools of a handler's own MCP endpoint. All of its messages are POSTs to one path, so what costs money is known
 * only from the message: it is read here, and written anew for the handler, who must not read another one than the toll.
 */
import type { EdgeContext } from '../../shared/contracts.ts';
import { matchPaidRoute } from '../../shared/match-paid-route.ts';
import {
  answerOf,
  folded,
  isFields,
  type Message,
  type MessageId,
  MOST_MESSAGE_BYTES,
  messagesOf,
  type ToolCall,
  type ToolResult,
  toolCallOf,
} from '../../shared/mcp-message.ts';
import { asProblem, Problem } from '../../shared/problem.ts';
import { readBody } from '../../shared/request-body.ts';
import { credentialsOf, toolAnswer } from '../mcp/transport.ts';
import { removeCredentials } from '../methods/index.ts';
import { declaredLength } from '../request.ts';
import type { PaidRoute } from '../types.ts';
import { exposed, withRequestId } from './messages.ts';

/** Of a handler's answer, which is read whole: whether a tool failed stands in it. */
const MOST_ANSWER_BYTES = 4 * 1_048_576;
/** Of every paid call: a call that is repeated has another id, and has to be the same call. */
const PAID_ID = 1;

type Priced = PaidRoute & { tool: string };

/** What the rest of the toll does for it. */
export interface ToolToll {
  /** The 402 of a route, over HTTP. */
  unpaid(route: PaidRoute): Response;
  /** Takes the payment, forwards, and charges for an answer below 400. @param judged what an answer is worth */
  pay(request: Request, route: PaidRoute, judged: (answer: Response) => Promise<Response>): Promise<Response>;
  free(request: Request): Promise<Response>;
}

/**
 * A handler that does not look at the method would read a message of any request that has a body.
 * @throws Problem `method_not_allowed`
 */
export function refuseOtherMethods({ method, headers }: Request, routes: readonly PaidRoute[], path: string): void {
  if (method === 'POST' || !(headers.has('transfer-encoding') || declaredLength(headers))) return;
  const tools = routes.filter(({ tool }) => tool !== undefined);
  if (matchPaidRoute(tools, 'POST', path) === undefined) return;
  throw new Problem('method_not_allowed', 'Messages of MCP are sent by POST; other requests have no body here.', {
    headers: { allow: 'POST' },
  });
}

/** @param first the route that was found for the request @param routes all of the deployment */
export async function payTools(
  request: Request,
  context: EdgeContext,
  first: PaidRoute,
  routes: readonly PaidRoute[],
  toll: ToolToll,
): Promise<Response> {
  const path = context.tenantPath ?? '/';
  const priced = routes.filter(
    (route): route is Priced => route.tool !== undefined && matchPaidRoute([route], 'POST', path) !== undefined,
  );
  const body = await readBody(request, MOST_MESSAGE_BYTES, context.clientIp);
  // Indexers ask with an empty body.
  if (body.length === 0) return toll.unpaid(first);
  const read = messagesOf(body);
  if (!read) return exposed(notMcp().toResponse(context.requestId));
  const { batch, messages, plain } = read;
  const [message] = messages;
  const paid = messages.find((each) => isPriced(each, priced));
  if (!paid || !message) {
    const answer = await toll.free(withBody(request, Buffer.from(plain)));
    const list = messages.find(({ method }) => method === 'tools/list');
    return list?.id === undefined ? answer : await withPrices(answer, list.id, priced);
  }
  try {
    if (batch) throw new Problem('bad_request', 'A tool that costs money is called in a message of its own.');
    if (paid.id === undefined) throw new Problem('bad_request', 'A call that costs money needs an id.');
    return await pay(request, context, paid.id, toolCallOf(paid), priced, toll);
  } catch (error) {
    const problem = asProblem(error);
    if (problem.isFault) throw error;
    const refused = problem.toResponse(context.requestId);
    // A message without an id gets no answer.
    if (paid.id === undefined || batch) return exposed(refused);
    return answered(await toolAnswer(paid.id, {}, refused, () => ({ content: [] })), new Headers(refused.headers));
  }
}

async function pay(
  request: Request,
  context: EdgeContext,
  id: MessageId,
  call: ToolCall | undefined,
  priced: readonly Priced[],
  toll: ToolToll,
): Promise<Response> {
  const route = priced.find(({ tool }) => tool === call?.name);
  if (!call || !route)
    throw new Problem('bad_request', 'The name of a tool is taken in its plain spelling alone; see tools/list.');
  const { headers, rest } = credentialsOf(call.meta);
  const params = {
    name: call.name,
    arguments: call.arguments,
    ...(Object.keys(rest).length > 0 ? { _meta: rest } : {}),
  };
  const text = JSON.stringify({ jsonrpc: '2.0', id: PAID_ID, method: 'tools/call', params });
  const asked = withBody(request, Buffer.from(text), headers);
  let failed: Record<string, unknown> | undefined;
  const answer = await toll.pay(asked, route, async (sent) => {
    if (sent.status >= 400) return sent;
    const found = answerOf(await readText(sent), sent.headers.get('content-type') ?? '', PAID_ID);
    if (!found)
      throw new Problem('upstream_failed', 'The handler answered with no message of MCP; nothing was charged.');
    if ('error' in found || !isResult(found.result) || found.result.isError === true) {
      failed = found;
      return new Response(null, { status: 422 });
    }
    return answered(JSON.stringify(found.result), new Headers(sent.headers));
  });
  if (failed) {
    await answer.body?.cancel();
    return withRequestId(answered(JSON.stringify({ ...failed, id }), new Headers()), context);
  }
  const own = new Headers(answer.headers);
  const made = await toolAnswer(id, call.meta, answer, (whole) => {
    // Of a session that was topped up or closed there is a receipt alone.
    const result: unknown = whole === '' ? {} : JSON.parse(whole);
    return isResult(result) ? result : { content: [] };
  });
  return answered(made, own);
}

function isPriced(message: Message, priced: readonly Priced[]): boolean {
  if (folded(message.method) !== 'tools/call') return false;
  const { name } = message.params;
  // Handlers may be lenient with names: what could be read as a priced one, as `["look"]` is by `tools[name]`, is not free.
  return typeof name !== 'string' || priced.some(({ tool }) => folded(tool) === folded(name));
}

function isResult(value: unknown): value is ToolResult {
  return isFields(value) && Array.isArray(value.content);
}

/** Tools with their prices, in the `_meta` of each. */
async function withPrices(answer: Response, id: MessageId, priced: readonly Priced[]): Promise<Response> {
  if (!answer.ok) return answer;
  const text = await readText(answer);
  const found = answerOf(text, answer.headers.get('content-type') ?? '', id);
  const result = found?.result;
  const headers = new Headers(answer.headers);
  if (!isFields(result) || !Array.isArray(result.tools)) return new Response(text, { status: answer.status, headers });
  const tools = result.tools.map((tool: unknown) => {
    const route = isFields(tool) && priced.find((each) => each.tool === tool.name);
    if (!route || !isFields(tool)) return tool;
    const price = { amount: route.price, currency: 'USD', mode: route.mode };
    return { ...tool, _meta: { ...(isFields(tool._meta) ? tool._meta : {}), 'dev.turnpike/price': price } };
  });
  return answered(JSON.stringify({ ...found, result: { ...result, tools } }), headers);
}

function notMcp(): Problem {
  return new Problem(
    'bad_request',
    'This path takes messages of MCP: a JSON-RPC 2.0 object in the body. Nothing was charged.',
  );
}

/** @throws Problem `upstream_failed` for an answer that is too large */
async function readText(answer: Response): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of answer.body ?? []) {
    size += part.length;
    // Leaving the loop gives the rest up.
    if (size > MOST_ANSWER_BYTES)
      throw new Problem(
        'upstream_failed',
        `The handler's answer has more than ${MOST_ANSWER_BYTES} bytes; nothing was charged.`,
      );
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** The request with another body; with credentials, its own are not looked at. */
function withBody(request: Request, body: Buffer, credentials?: Record<string, string>): Request {
  const headers = new Headers(request.headers);
  if (credentials) removeCredentials(headers);
  for (const [name, value] of Object.entries(credentials ?? {})) headers.set(name, value);
  headers.set('content-type', 'application/json');
  headers.delete('content-encoding');
  headers.set('content-length', String(body.length));
  return new Request(request.url, { method: 'POST', headers, body: new Uint8Array(body), signal: request.signal });
}

function answered(text: string, headers: Headers): Response {
  headers.set('content-type', 'application/json');
  headers.set('content-length', String(Buffer.byteLength(text)));
  headers.delete('content-encoding');
  return new Response(text, { status: 200, headers });
}
