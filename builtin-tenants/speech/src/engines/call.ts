/**
 * HTTP to engines elsewhere: a deadline over the whole answer, a limit on its size, and one meaning for every way to fail.
 */
import { SpeechFailure } from '../failure.ts';

export interface CallOptions {
  /** How the engine is called in messages. */
  name: string;
  signal: AbortSignal;
  /** Aborted with the reason when the body that is being sent breaks off. */
  source?: AbortSignal | undefined;
}

/** @throws SpeechFailure SERVICE_UNAVAILABLE when nobody answers, TIMEOUT, or what the source failed with */
export async function call(url: string, init: RequestInit, options: CallOptions): Promise<Response> {
  const signal = options.source === undefined ? options.signal : AbortSignal.any([options.signal, options.source]);
  try {
    const response = await fetch(url, { ...init, redirect: 'manual', signal });
    options.source?.throwIfAborted();
    return response;
  } catch (error) {
    throw translated(error, options, 'cannot be reached; try again later');
  }
}

/** @throws SpeechFailure UPSTREAM_ERROR when the answer breaks off or is too long, TIMEOUT */
export async function readBytes(
  response: Response,
  maxBytes: number,
  options: CallOptions,
): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const chunk of (response.body ?? new Blob([]).stream()) as AsyncIterable<Uint8Array>) {
      length += chunk.byteLength;
      if (length > maxBytes) throw new SpeechFailure('UPSTREAM_ERROR', `The ${options.name} engine answered too much.`);
      chunks.push(chunk);
    }
  } catch (error) {
    throw translated(error, options, 'broke off its answer; try again', 'UPSTREAM_ERROR');
  }
  const declared = response.headers.get('content-length');
  if (declared !== null && !response.headers.has('content-encoding') && Number(declared) !== length) {
    throw new SpeechFailure('UPSTREAM_ERROR', `The ${options.name} engine broke off its answer; try again.`);
  }
  const all = new Uint8Array(length);
  let offset = 0;
  for (const chunk of chunks) {
    all.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return all;
}

const JSON_BYTES = 32 * 1024 * 1024;

/** @throws SpeechFailure UPSTREAM_ERROR for anything but a JSON object */
export async function readJson(response: Response, options: CallOptions): Promise<Record<string, unknown>> {
  const bytes = await readBytes(response, JSON_BYTES, options);
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // said below
  }
  throw new SpeechFailure(
    'UPSTREAM_ERROR',
    `The ${options.name} engine answered something that is not JSON; try again.`,
  );
}

/**
 * What a refusal of a remote engine means to our caller. Its own text is passed on where it speaks of the request, and
 * kept back where it speaks of the operator's account.
 */
export async function refusal(response: Response, options: CallOptions): Promise<SpeechFailure> {
  const { status } = response;
  const said = await readJson(response, options).then(messageOf, () => undefined);
  const detail = said === undefined ? '' : ` ${said}`;
  const wait = Number.parseInt(response.headers.get('retry-after') ?? '', 10);
  const retryAfter = Number.isNaN(wait) ? 5 : Math.min(60, Math.max(1, wait));
  const who = `The ${options.name} engine`;
  switch (true) {
    case status === 401 || status === 402 || status === 403:
      return new SpeechFailure(
        'SERVICE_UNAVAILABLE',
        `${who} refused this service; the operator has to look at its account.`,
      );
    case status === 408 || status === 504:
      return new SpeechFailure('TIMEOUT', `${who} did not answer in time; try again.`);
    case status === 413:
      return new SpeechFailure('PAYLOAD_TOO_LARGE', `${who} takes no audio or text of this size.${detail}`);
    case status === 422:
      return new SpeechFailure('UNPROCESSABLE_OPTION', `${who} refused an option.${detail}`);
    case status === 429:
      return new SpeechFailure('TOO_MANY_REQUESTS', `${who} is busy; try again in ${retryAfter} s.`, { retryAfter });
    case status === 503:
      return new SpeechFailure('SERVICE_UNAVAILABLE', `${who} is not available; try again later.`, { retryAfter });
    case status >= 500 || status < 400:
      return new SpeechFailure('UPSTREAM_ERROR', `${who} failed (${status}); try again.`);
    default:
      return new SpeechFailure('INVALID_BODY', `${who} refused the request.${detail}`);
  }
}

function messageOf(body: Record<string, unknown>): string | undefined {
  const nested = body.error;
  const inner = typeof nested === 'object' && nested !== null && 'message' in nested ? nested.message : nested;
  const said = body.err_msg ?? body.message ?? body.details ?? inner;
  return typeof said === 'string' ? said.slice(0, 300) : undefined;
}

function translated(
  error: unknown,
  { name, signal, source }: CallOptions,
  what: string,
  code: 'SERVICE_UNAVAILABLE' | 'UPSTREAM_ERROR' = 'SERVICE_UNAVAILABLE',
): Error {
  if (source?.aborted) return source.reason;
  if (error instanceof SpeechFailure) return error;
  if (signal.aborted) {
    return new SpeechFailure('TIMEOUT', `The ${name} engine did not answer in time; try again.`, { cause: error });
  }
  return new SpeechFailure(code, `The ${name} engine ${what}.`, { cause: error });
}
