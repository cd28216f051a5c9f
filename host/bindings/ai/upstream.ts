/**
 * The operator's model server: asked with the operator's key, believed in nothing. What it sends is bounded in bytes and
 * time, and what it says of an error reaches nobody but the host's log.
 */
import type { Config } from '../../shared/config.ts';
import { AiFault, failed, type ModelCall, modelAnswer, streamEvent } from './shapes.ts';

/** A whole answer: a hundred embeddings of 4096 numbers. */
const MOST_ANSWER_BYTES = 8 * 1_048_576;
/** A stream, in all and of one line. */
const MOST_STREAM_BYTES = 8 * 1_048_576;
const MOST_LINE = 256 * 1_024;

const NO_CAPACITY = 3_040;

export interface ModelServer {
  /** @throws AiFault */
  whole(call: ModelCall, signal: AbortSignal): Promise<unknown>;
  /** Events as Workers AI sends them. @throws AiFault */
  events(call: ModelCall, signal: AbortSignal): AsyncGenerator<string>;
}

/** The operator is told once in this time, ms: tenants cause it. */
const WARN_MS = 10_000;

/** @param tell adds a line to the host's log */
export function modelServer(
  { url, key }: Pick<Config['ai'], 'url' | 'key'>,
  tell: (text: string) => void,
): ModelServer {
  const base = url.replace(/\/+$/, '');
  let warnedAt = Number.NEGATIVE_INFINITY;
  const warn = (text: string): void => {
    const now = performance.now();
    if (now - warnedAt < WARN_MS) return;
    warnedAt = now;
    tell(text);
  };

  async function ask({ path, body }: ModelCall, signal: AbortSignal): Promise<Response> {
    const headers = { 'content-type': 'application/json', ...(key === '' ? {} : { authorization: `Bearer ${key}` }) };
    const answer = await fetch(`${base}${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      signal,
      // It would take the key elsewhere.
      redirect: 'error',
    }).catch((error: Error) => {
      throw signal.aborted ? late() : unreachable(error);
    });
    if (answer.ok) return answer;
    await answer.body?.cancel().catch(() => undefined);
    warn(`the model server answered ${answer.status} to ${path}`);
    if (answer.status === 429 || answer.status === 503)
      throw new AiFault(429, NO_CAPACITY, 'The model server is busy; try again in a few seconds.');
    // Its text could quote the key.
    throw answer.status === 400 || answer.status === 422
      ? new AiFault(400, 5_006, 'The model server refused the inputs.')
      : failed(`The model server answered ${answer.status}.`);
  }

  function unreachable(error: Error): AiFault {
    warn(`the model server cannot be reached: ${String((error.cause as Error)?.message ?? error.message)}`);
    return failed('The model server cannot be reached.');
  }

  async function* chunks(answer: Response, most: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    let bytes = 0;
    const body = answer.body as AsyncIterable<Uint8Array> | null;
    if (!body) throw failed('The model server answered nothing.');
    try {
      for await (const chunk of body) {
        bytes += chunk.length;
        if (bytes > most) throw failed('The answer of the model server is too large.');
        yield chunk;
      }
    } catch (error) {
      if (error instanceof AiFault) throw error;
      throw signal.aborted ? late() : failed('The model server broke its answer off.');
    }
  }

  return {
    async whole(call, signal) {
      const answer = await ask(call, signal);
      const parts: Uint8Array[] = [];
      for await (const chunk of chunks(answer, MOST_ANSWER_BYTES, signal)) parts.push(chunk);
      let parsed: unknown;
      try {
        parsed = JSON.parse(Buffer.concat(parts).toString());
      } catch {
        throw failed('The model server answered no JSON.');
      }
      return modelAnswer(call, parsed);
    },
    async *events(call, signal) {
      const answer = await ask(call, signal);
      for await (const line of lines(chunks(answer, MOST_STREAM_BYTES, signal))) {
        if (!line.startsWith('data:')) continue;
        const { event, done } = streamEvent(line.slice(5).trim());
        if (event !== undefined) yield event;
        if (!done) continue;
        yield 'data: [DONE]\n\n';
        return;
      }
      throw failed('The model server ended its stream without [DONE].');
    },
  };
}

async function* lines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  // Joined only where a line ends: each byte may come by itself.
  let parts: string[] = [];
  let length = 0;
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    const end = text.lastIndexOf('\n');
    if (end >= 0) {
      yield* (parts.join('') + text.slice(0, end)).split(/\r?\n/);
      parts = [];
      length = 0;
    }
    const rest = text.slice(end + 1);
    length += rest.length;
    if (length > MOST_LINE) throw failed('An event of the model server is too large.');
    parts.push(rest);
  }
}

function late(): AiFault {
  return new AiFault(408, 3_007, 'The model server took too long.');
}
