/**
 * Reads what a host answers, and no more than that is good for: a host is not believed to end its answers. Also the one
 * way by which the command sends a request.
 */
import { Failure } from './terminal/failure.ts';
import { isLoopback } from './wallet/local-host.ts';

/** Largest JSON document or text that is read, bytes. */
const LARGEST_ANSWER = 64 * 1024 * 1024;

/** @throws Failure `unreachable` when it is larger, or breaks off */
export async function readText(response: Response, limit = LARGEST_ANSWER): Promise<string> {
  return (await readBytes(response, limit)).toString('utf8');
}

/** @throws Failure `unreachable` when it is larger, or breaks off */
export async function readBytes(response: Response, limit = LARGEST_ANSWER): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of answerBytes(response)) {
    size += piece.length;
    // Leaving the loop cancels the rest of the answer.
    if (size > limit) throw new Failure('unreachable', `The answer is larger than ${limit} bytes; it was not read on.`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** @throws Failure `unreachable` when it breaks off */
export async function* answerBytes(response: Response): AsyncGenerator<Uint8Array> {
  try {
    if (response.body) yield* response.body as unknown as AsyncIterable<Uint8Array>;
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure('unreachable', 'The answer broke off; run the command again.');
  }
}

/** @throws Failure `unreachable` when it is no JSON, or larger than is read */
export async function readJson(response: Response): Promise<unknown> {
  const text = await readText(response);
  try {
    return JSON.parse(text);
  } catch {
    throw new Failure('unreachable', `The answer (${response.status}) is not JSON. Is this the host's address?`);
  }
}

/** Headers with which whoever reads them could act or be paid. */
const CREDENTIALS = ['authorization', 'cookie', 'payment-signature', 'x-payment'];

/**
 * `fetch` that follows no redirect, so that no credential and no body reaches another origin, and that sends neither
 * without TLS, unless to this machine.
 * @param allowHttp whether `--allow-http` was given
 */
export function guardedFetch(inner: typeof fetch, allowHttp: boolean): typeof fetch {
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input);
    const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
    const secret = (init?.body ?? undefined) !== undefined || CREDENTIALS.some((name) => headers.has(name));
    if (secret) requireTls(url, allowHttp);
    return inner(input, { ...init, redirect: 'manual' });
  };
}

/** @throws Failure `usage` */
export function requireTls(url: URL, allowHttp: boolean): void {
  if (url.protocol === 'https:' || isLoopback(url) || allowHttp) return;
  throw new Failure(
    'usage',
    `${url.origin} has no TLS: everybody on the way could read what is sent, and change it. Use its https address, or add --allow-http in a network that you trust.`,
  );
}
