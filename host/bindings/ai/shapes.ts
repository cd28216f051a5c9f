/**
 * Workers AI's inputs as requests of OpenAI's API, and its answers as Workers AI gives them. Pure. What is not understood
 * is refused by name: nothing is left out silently.
 * https://developers.cloudflare.com/workers-ai/models/ (text generation, text embeddings)
 */

/** What the handler gets as `InferenceUpstreamError: <code>: <message>`. */
export class AiFault extends Error {
  readonly status: number;
  /** As Workers AI numbers them: https://developers.cloudflare.com/workers-ai/platform/errors/ */
  readonly code: number;

  constructor(status: number, code: number, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const invalid = (message: string) => new AiFault(400, 5_006, message);
export const failed = (message: string) => new AiFault(502, 3_043, message);

export interface ModelCall {
  task: 'text' | 'embeddings';
  /** Below the server's address. */
  path: string;
  body: Record<string, unknown>;
  stream: boolean;
}

type Inputs = Readonly<Record<string, unknown>>;

/** Texts of one call that are embedded, as at Cloudflare. */
const MOST_TEXTS = 100;
/** What is passed on as it is. */
const NUMBERS = ['max_tokens', 'temperature', 'top_p', 'seed', 'frequency_penalty', 'presence_penalty'];
const AS_GIVEN = ['tools', 'tool_choice', 'response_format', 'stop'];
const GENERATION = new Set(['prompt', 'messages', 'stream', ...NUMBERS, ...AS_GIVEN]);
const EMBEDDING = new Set(['text']);

/** @param model of the server @param inputs of `run()` @throws AiFault */
export function modelCall(model: string, inputs: unknown): ModelCall {
  if (!isObject(inputs)) throw invalid('inputs is not an object.');
  if (inputs.text !== undefined) return embeddings(model, inputs);
  if (inputs.prompt !== undefined || inputs.messages !== undefined) return generation(model, inputs);
  throw invalid('This host takes text generation ("messages" or "prompt") and embeddings ("text") alone.');
}

function generation(model: string, inputs: Inputs): ModelCall {
  onlyKnown(inputs, GENERATION);
  const { prompt, messages, stream = false } = inputs;
  if (typeof stream !== 'boolean') throw invalid('stream is not true or false.');
  if (prompt !== undefined && messages !== undefined) throw invalid('prompt and messages are given; leave out one.');
  if (prompt !== undefined && typeof prompt !== 'string') throw invalid('prompt is not a text.');
  if (messages !== undefined && !(Array.isArray(messages) && messages.length > 0 && messages.every(isMessage)))
    throw invalid('messages is not a list of { role, content }.');
  const body: Record<string, unknown> = { model, messages: messages ?? [{ role: 'user', content: prompt }] };
  for (const name of NUMBERS) {
    if (inputs[name] === undefined) continue;
    if (typeof inputs[name] !== 'number') throw invalid(`${name} is not a number.`);
    body[name] = inputs[name];
  }
  for (const name of AS_GIVEN) if (inputs[name] !== undefined) body[name] = inputs[name];
  if (Array.isArray(body.tools)) body.tools = body.tools.map(tool);
  if (stream) Object.assign(body, { stream: true, stream_options: { include_usage: true } });
  return { task: 'text', path: '/chat/completions', body, stream };
}

/** Workers AI also takes a function without what OpenAI has around it. */
function tool(given: unknown): unknown {
  return isObject(given) && given.function === undefined && typeof given.name === 'string'
    ? { type: 'function', function: given }
    : given;
}

function embeddings(model: string, inputs: Inputs): ModelCall {
  onlyKnown(inputs, EMBEDDING);
  const { text } = inputs;
  const texts = Array.isArray(text) ? text : [text];
  if (texts.length === 0 || !texts.every((one) => typeof one === 'string'))
    throw invalid('text is not a text, or a list of texts.');
  if (texts.length > MOST_TEXTS) throw invalid(`text has ${texts.length} texts; ${MOST_TEXTS} are taken at a time.`);
  return { task: 'embeddings', path: '/embeddings', body: { model, input: texts }, stream: false };
}

function onlyKnown(inputs: Inputs, known: ReadonlySet<string>): void {
  const unknown = Object.keys(inputs).find((name) => inputs[name] !== undefined && !known.has(name));
  if (unknown !== undefined)
    throw invalid(
      `This host does not take ${unknown.slice(0, 40)} with these inputs; it takes ${[...known].join(', ')}.`,
    );
}

/** The whole answer of the server, as `run()` resolves to it. @throws AiFault */
export function modelAnswer({ task, body }: ModelCall, answer: unknown): unknown {
  const found = task === 'text' ? textAnswer(answer) : embeddingsAnswer(answer, (body.input as string[]).length);
  if (found === undefined) throw failed('The model server answered in another form than OpenAI has.');
  return found;
}

function textAnswer(answer: unknown): unknown {
  if (!isObject(answer) || !Array.isArray(answer.choices)) return undefined;
  const [choice] = answer.choices as unknown[];
  const message = isObject(choice) ? choice.message : undefined;
  if (!isObject(message)) return undefined;
  const { content, tool_calls: calls } = message;
  if (typeof content !== 'string' && content !== null && content !== undefined) return undefined;
  return {
    response: content ?? (Array.isArray(calls) ? null : ''),
    ...(Array.isArray(calls) ? { tool_calls: calls.map(toolCall) } : {}),
    ...(isObject(answer.usage) ? { usage: answer.usage } : {}),
  };
}

/** Workers AI gives the arguments of a function as an object. */
function toolCall(call: unknown): unknown {
  const { name, arguments: text } = isObject(call) && isObject(call.function) ? call.function : {};
  let given: unknown = text;
  try {
    if (typeof text === 'string') given = JSON.parse(text);
  } catch {
    // The model wrote something else: it is the handler's to judge.
  }
  return { name, arguments: given };
}

function embeddingsAnswer(answer: unknown, count: number): unknown {
  if (!isObject(answer) || !Array.isArray(answer.data) || answer.data.length !== count) return undefined;
  const data: unknown[] = new Array(count);
  for (const [at, entry] of answer.data.entries()) {
    if (!isObject(entry)) return undefined;
    const { index = at, embedding } = entry;
    if (!Array.isArray(embedding) || !embedding.every(Number.isFinite)) return undefined;
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= count || data[index as number])
      return undefined;
    data[index as number] = embedding;
  }
  return { shape: [count, (data[0] as number[]).length], data };
}

/**
 * One event of the server's stream, as Workers AI sends it.
 * @param data behind `data: `
 * @returns undefined where it says nothing to the handler @throws AiFault
 */
export function streamEvent(data: string): { event?: string; done?: boolean } {
  if (data === '[DONE]') return { done: true };
  let part: unknown;
  try {
    part = JSON.parse(data);
  } catch {
    throw failed('The model server sent an event that is not JSON.');
  }
  if (!isObject(part)) throw failed('The model server sent an event of another form than OpenAI has.');
  if (part.error !== undefined) throw failed('The model server broke its answer off with an error.');
  const [choice] = Array.isArray(part.choices) ? (part.choices as unknown[]) : [];
  const delta = isObject(choice) && isObject(choice.delta) ? choice.delta : {};
  const response = typeof delta.content === 'string' ? delta.content : '';
  const shown: Record<string, unknown> = { response };
  if (Array.isArray(delta.tool_calls)) shown.tool_calls = delta.tool_calls;
  if (isObject(part.usage)) shown.usage = part.usage;
  if (response === '' && Object.keys(shown).length === 1) return {};
  return { event: `data: ${JSON.stringify(shown)}\n\n` };
}

function isMessage(value: unknown): boolean {
  return isObject(value) && typeof value.role === 'string' && 'content' in value;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
