/**
 * Fetches what callers point to, through the host's egress and with limits of its own: http(s), three redirects followed
 * by hand, bytes counted as they stream (after decompression), one deadline for everything. What goes wrong is
 * REMOTE_CONTENT_ERROR.
 */
import { SpeechFailure } from './failure.ts';

export interface RemoteLimits {
  maxBytes: number;
  /** For the whole transfer. */
  signal: AbortSignal;
  /** Names that the operator opened for this service alone. */
  privateHosts: ReadonlySet<string>;
}

export interface RemoteContent {
  /** Lower case, without parameters; empty when the server named none. */
  type: string;
  /** As the server named it, with its parameters. */
  fullType: string;
  /** Ends with an error past the limit, or when the server breaks off. */
  body: ReadableStream<Uint8Array>;
  /**
   * Aborted with the reason when `body` ends with an error. Whoever sends the body on must look here: workerd
   * (1.20261117) ends a chunked request whose stream fails as if it were complete.
   */
  broken: AbortSignal;
}

const REDIRECTS = 3;

export async function fetchRemote(address: string, limits: RemoteLimits): Promise<RemoteContent> {
  let url = checkUrl(address, limits.privateHosts);
  for (let hop = 0; hop <= REDIRECTS; hop++) {
    const response = await get(url, limits.signal);
    if (response.status >= 300 && response.status < 400) {
      await response.body?.cancel();
      const location = response.headers.get('location');
      if (location === null || !URL.canParse(location, url)) throw failed('it redirects to nowhere');
      url = checkUrl(new URL(location, url).href, limits.privateHosts);
      continue;
    }
    return await opened(response, limits);
  }
  throw failed(`it redirects more than ${REDIRECTS} times`);
}

/** @throws SpeechFailure REMOTE_CONTENT_ERROR */
export function checkUrl(address: string, privateHosts: ReadonlySet<string>): string {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw failed('it is not an http(s) URL');
  if (url.username !== '' || url.password !== '') throw failed('it holds credentials');
  const host = url.hostname.replace(/\.$/, '');
  if (host.endsWith('.internal') || privateHosts.has(host)) throw failed('that host is not public');
  return url.href;
}

async function get(url: string, signal: AbortSignal): Promise<Response> {
  try {
    return await fetch(url, {
      redirect: 'manual',
      headers: { accept: '*/*', 'accept-encoding': 'identity', 'user-agent': 'turnpike-speech/1.0' },
      signal,
    });
  } catch (error) {
    throw signal.aborted ? failed('it took too long', error) : failed('it cannot be reached', error);
  }
}

async function opened(response: Response, limits: RemoteLimits): Promise<RemoteContent> {
  const declared = Number(response.headers.get('content-length') ?? 0);
  const refusal = /destination_ip_prohibited/.test(response.headers.get('proxy-status') ?? '')
    ? 'that host is not public'
    : response.status < 200 || response.status > 299
      ? `the server answered ${response.status}`
      : declared > limits.maxBytes
        ? `it is larger than ${limits.maxBytes} bytes`
        : undefined;
  if (refusal !== undefined || response.body === null) {
    await response.body?.cancel();
    throw failed(refusal ?? 'it is empty');
  }
  const reasons: CountedReasons = {
    tooLarge: () => failed(`it is larger than ${limits.maxBytes} bytes`),
    brokeOff: (cause) =>
      limits.signal.aborted ? failed('it took too long', cause) : failed('the server broke off', cause),
  };
  const fullType = response.headers.get('content-type') ?? '';
  const [type = ''] = fullType.split(';');
  return { type: type.trim().toLowerCase(), fullType, ...counted(response.body, limits.maxBytes, reasons) };
}

export interface CountedReasons {
  tooLarge(): SpeechFailure;
  brokeOff(cause: unknown): SpeechFailure;
}

/** Passes bytes on up to a limit. */
export function counted(
  source: ReadableStream<Uint8Array>,
  maxBytes: number,
  reasons: CountedReasons,
): Pick<RemoteContent, 'body' | 'broken'> {
  const reader = source.getReader();
  let bytes = 0;
  const broken = new AbortController();
  const fail = (controller: ReadableStreamDefaultController, reason: SpeechFailure) => {
    broken.abort(reason);
    controller.error(reason);
    reader.cancel(reason).catch(() => {});
  };
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) return controller.close();
        bytes += value.byteLength;
        if (bytes > maxBytes) return fail(controller, reasons.tooLarge());
        controller.enqueue(value);
      } catch (error) {
        fail(controller, reasons.brokeOff(error));
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return { body, broken: broken.signal };
}

/** Files that only name other files, and documents: nothing that could be listened to. */
const NOT_AUDIO =
  /^(text\/|image\/|application\/(json|xml|pdf|zip|gzip|javascript|xhtml\+xml|dash\+xml|vnd\.apple\.mpegurl|x-mpegurl)|audio\/(x-)?mpegurl|audio\/x-scpls)/;

/** @throws SpeechFailure when the server says that it is something else than audio */
export function mustBeAudio(type: string): void {
  if (NOT_AUDIO.test(type)) throw failed(`it is ${type}, not audio`);
}

export function isAudio(type: string): boolean {
  return /^(audio|video)\//.test(type) && !NOT_AUDIO.test(type);
}

function failed(why: string, cause?: unknown): SpeechFailure {
  return new SpeechFailure('REMOTE_CONTENT_ERROR', `The content at the URL could not be used: ${why}.`, { cause });
}
