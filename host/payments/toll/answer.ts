/**
 * The body of a paid answer. Small ones are read whole before money moves, so that what is charged is also kept; others
 * stream to the caller as they come, and a copy is kept as far as it goes.
 */
import { declaredLength } from '../request.ts';

/** Bodies up to this length (declared) are read before settling. */
const BUFFER_BYTES = 256 * 1024;
/** Streamed bodies are kept for replays up to this length. */
const KEEP_BYTES = 1024 * 1024;
/** How long a handler may go on after its caller has left, ms: long enough to finish an answer worth keeping. */
const DRAIN_MS = 30_000;

/** Headers of the hop, and those that the toll writes itself. */
const OWN = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'x-charge',
  'payment-receipt',
  'payment-response',
  'x-payment-response',
  'x-payment-id',
  'x-payment-amount',
  'x-payment-held',
  'x-payment-replayed',
]);

export function answerHeaders(headers: Headers): [string, string][] {
  return [...headers].filter(([name]) => !OWN.has(name));
}

export function readsWhole(response: Response): boolean {
  if (response.body === null) return true;
  const length = declaredLength(response.headers);
  return length !== undefined && length <= BUFFER_BYTES;
}

/** @throws when the handler breaks off, or sends less than it declared */
export async function readWhole(response: Response): Promise<Buffer> {
  const body = Buffer.from(await response.arrayBuffer());
  const declared = declaredLength(response.headers);
  // HEAD declares the length of what it does not send.
  if (declared !== undefined && body.length > 0 && body.length < declared) throw new Error('the answer was cut short');
  return body;
}

export interface StreamEnd {
  /** The whole body, if it was short enough to keep. */
  kept: Buffer | undefined;
  clientGone: boolean;
}

/**
 * Passes a body on as it comes. When the caller leaves, the handler may still finish.
 * @param gone aborts when the caller has left; servers do not cancel a body that they never began to send
 * @param ended called once; rejects when the handler breaks off. The stream ends when it has resolved.
 */
export function passThrough(
  body: ReadableStream<Uint8Array>,
  gone: AbortSignal,
  ended: (end: Promise<StreamEnd>) => Promise<void>,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const kept: Uint8Array[] = [];
  let size = 0;
  const keep = (chunk: Uint8Array) => {
    size += chunk.length;
    if (size <= KEEP_BYTES) kept.push(chunk.slice());
    else kept.length = 0;
  };
  const end = (clientGone: boolean): StreamEnd => ({
    kept: size <= KEEP_BYTES ? Buffer.concat(kept) : undefined,
    clientGone,
  });

  async function drain(): Promise<StreamEnd> {
    const timer = setTimeout(() => void reader.cancel().catch(() => {}), DRAIN_MS);
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return end(true);
        keep(value);
        if (size > KEEP_BYTES) {
          await reader.cancel();
          return end(true);
        }
      }
    } finally {
      clearTimeout(timer);
    }
  }

  let over = false;
  const finish = async (outcome: () => Promise<StreamEnd>): Promise<void> => {
    if (over) return;
    over = true;
    gone.removeEventListener('abort', leave);
    await ended(outcome()).catch(() => {});
  };
  function leave(): void {
    void finish(drain);
  }
  if (gone.aborted) leave();
  else gone.addEventListener('abort', leave);

  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) {
          keep(value);
          controller.enqueue(value);
          return;
        }
        await finish(async () => end(false));
        controller.close();
      } catch (error) {
        await finish(() => Promise.reject(error));
        controller.error(error);
      }
    },
    async cancel() {
      await finish(drain);
    },
  });
}
