/**
 * The boundary for messages of the Model Context Protocol: JSON-RPC 2.0 in the body of a POST, as its "streamable HTTP"
 * transport has it (https://modelcontextprotocol.io/specification, 2025-11-25, basic/transports). What others sent is
 * read here, and nothing is believed of it but its shape.
 */
import { Problem } from './problem.ts';

export type MessageId = string | number;
export type Meta = Record<string, unknown>;
type Fields = Record<string, unknown>;

/** A request, or a notification where it has no id. */
export interface Message {
  id: MessageId | undefined;
  method: string;
  params: Fields;
}

/** Arguments of `tools/call`. */
export interface ToolCall {
  name: string;
  arguments: Fields;
  meta: Meta;
}

/** Of a result of `tools/call`, what everybody may look at. */
export interface ToolResult extends Fields {
  content: unknown[];
  isError?: boolean;
  _meta?: Meta;
}

/** Largest message: who sends it has paid nothing yet, and it has to be parsed to be known. */
export const MOST_MESSAGE_BYTES = 1_048_576;

/** JSON-RPC 2.0, section 5.1. */
export const INVALID_REQUEST = -32600;
export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;

/**
 * @returns the messages of a body, one or a batch, and the body as every reader understands it, without members that
 *   are there twice; undefined where it holds none
 */
export function messagesOf(body: Uint8Array): { batch: boolean; messages: Message[]; plain: string } | undefined {
  let value: unknown;
  let plain: string;
  try {
    value = JSON.parse(new TextDecoder().decode(body));
    // Fails for what is nested too deeply.
    plain = JSON.stringify(value);
  } catch {
    return undefined;
  }
  const batch = Array.isArray(value);
  const messages = (batch ? (value as unknown[]) : [value]).map(messageOf);
  return messages.length > 0 && messages.every((message) => message !== undefined)
    ? { batch, messages, plain }
    : undefined;
}

function messageOf(value: unknown): Message | undefined {
  if (!isFields(value) || value.jsonrpc !== '2.0' || !isPlain(value, MEMBERS)) return undefined;
  const { id, method, params } = value;
  if (isFields(params) && !isPlain(params, PARAMS)) return undefined;
  // Answers of a client to what the server asked: they are for the server alone.
  if (method === undefined && ('result' in value || 'error' in value)) return { id: undefined, method: '', params: {} };
  if (typeof method !== 'string' || !(id === undefined || typeof id === 'string' || typeof id === 'number'))
    return undefined;
  return { id, method, params: isFields(params) ? params : {} };
}

const MEMBERS = ['jsonrpc', 'id', 'method', 'params'];
const PARAMS = ['name', 'arguments', '_meta'];

/** Without members that some reader takes for one of these: readers in Go fold their case, copies get a prototype. */
function isPlain(fields: Fields, members: readonly string[]): boolean {
  return Object.keys(fields).every(
    (key) => members.includes(key) || !(key === '__proto__' || members.includes(folded(key))),
  );
}

/** What a lenient reader may take a name for. */
export function folded(name: string): string {
  return name
    .normalize('NFKC')
    .replace(/[\s\p{C}]/gu, '')
    .toLowerCase();
}

/** @returns undefined for every other message @throws Problem `bad_request` for a call that names no tool */
export function toolCallOf({ method, params }: Message): ToolCall | undefined {
  if (method !== 'tools/call') return undefined;
  const { name, arguments: given, _meta: meta } = params;
  if (typeof name !== 'string') throw new Problem('bad_request', 'tools/call takes the name of a tool in params.name.');
  return { name, arguments: isFields(given) ? given : {}, meta: isFields(meta) ? meta : {} };
}

/**
 * @param text of a body, JSON or server-sent events
 * @returns the answer with this id, or undefined where there is none
 */
export function answerOf(text: string, contentType: string, id: MessageId): Fields | undefined {
  const texts = /^text\/event-stream/i.test(contentType) ? eventsOf(text) : [text];
  for (const each of texts) {
    let value: unknown;
    try {
      value = JSON.parse(each);
    } catch {
      continue;
    }
    if (isFields(value) && value.id === id && ('result' in value || 'error' in value)) return value;
  }
  return undefined;
}

/** The data of each event. https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation */
function eventsOf(text: string): string[] {
  return text.split(/\r\n\r\n|\n\n|\r\r/).map((event) =>
    event
      .split(/\r\n|\n|\r/)
      .filter((line) => line.startsWith('data:'))
      .map((line) => line.slice(5).replace(/^ /, ''))
      .join('\n'),
  );
}

export function resultMessage(id: MessageId, result: object): string {
  return JSON.stringify({ jsonrpc: '2.0', id, result });
}

export function errorMessage(id: MessageId | null, code: number, message: string, data?: unknown): string {
  return JSON.stringify({ jsonrpc: '2.0', id, error: { code, message, ...(data === undefined ? {} : { data }) } });
}

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
