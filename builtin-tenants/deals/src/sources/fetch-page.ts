/**
 * The boundary for what sources send: few redirects followed by hand, a deadline, bytes counted as they come out of
 * the decompressor, text decoded by the rules of the web. Private addresses are refused by the host's own way out.
 */

export interface Page {
  /** Where it came from in the end. */
  url: string;
  text: string;
  sha256: string;
  etag?: string;
  lastModified?: string;
}

export type Fetched = { page: Page } | { unchanged: true };

/** Why a source could not be read; `blocked`: it said that it does not want to be. */
export class FetchFailed extends Error {
  readonly kind: 'failed' | 'blocked';
  /** Seconds that the source asked to wait. */
  readonly retryAfter: number | undefined;

  constructor(kind: 'failed' | 'blocked', message: string, retryAfter?: number) {
    super(message);
    this.kind = kind;
    this.retryAfter = retryAfter;
  }
}

const MOST_REDIRECTS = 3;
/** Of a document that is read in pieces. */
export const MOST_BYTES = 20_000_000;
const AGENT = 'turnpike-deals/1 (price observation)';

/**
 * @param stop ends it, as a deadline does
 * @throws FetchFailed
 */
export async function fetchPage(
  url: string,
  known: { etag?: string | null; lastModified?: string | null },
  stop: AbortSignal,
  mostBytes = MOST_BYTES,
): Promise<Fetched> {
  let address = url;
  for (let hop = 0; hop <= MOST_REDIRECTS; hop++) {
    const response = await fetch(address, {
      redirect: 'manual',
      signal: stop,
      headers: {
        'user-agent': AGENT,
        accept: 'application/json, application/xml, text/xml, text/csv, text/html;q=0.9, */*;q=0.1',
        ...(known.etag ? { 'if-none-match': known.etag } : {}),
        ...(known.lastModified ? { 'if-modified-since': known.lastModified } : {}),
      },
    }).catch((error: Error) => {
      throw new FetchFailed(
        'failed',
        stop.aborted ? 'no answer in time' : `not reachable: ${error.message.slice(0, 200)}`,
      );
    });
    if (response.status === 304) return { unchanged: true };
    const location = response.headers.get('location');
    if (response.status >= 300 && response.status < 400 && location) {
      await response.body?.cancel();
      const next = new URL(location, address);
      if (next.protocol !== 'http:' && next.protocol !== 'https:')
        throw new FetchFailed('failed', 'a redirect to another protocol');
      address = next.href;
      continue;
    }
    // The host's own way out answers for an address that it refuses or cannot reach (RFC 9209): not the shop's word.
    if (response.headers.get('proxy-status')?.startsWith('turnpike;')) {
      const { detail } = (await response.json().catch(() => ({}))) as { detail?: string };
      throw new FetchFailed('failed', `not reachable: ${String(detail ?? response.status).slice(0, 200)}`);
    }
    if (!response.ok) {
      await response.body?.cancel();
      const wait = Number(response.headers.get('retry-after'));
      const blocked = [401, 403, 410, 451].includes(response.status);
      throw new FetchFailed(
        blocked ? 'blocked' : 'failed',
        `answered ${response.status}`,
        Number.isFinite(wait) && wait > 0 ? wait : undefined,
      );
    }
    const bytes = await readBounded(response, mostBytes);
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    const etag = response.headers.get('etag');
    const lastModified = response.headers.get('last-modified');
    return {
      page: {
        url: address,
        text: decode(bytes, response.headers.get('content-type') ?? ''),
        sha256: [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join(''),
        ...(etag ? { etag } : {}),
        ...(lastModified ? { lastModified } : {}),
      },
    };
  }
  throw new FetchFailed('failed', `more than ${MOST_REDIRECTS} redirects`);
}

async function readBounded(response: Response, mostBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = (response.body ?? new Blob([]).stream()).getReader();
  for (;;) {
    const { done, value } = await reader.read().catch((error: Error) => {
      throw new FetchFailed('failed', `broken off: ${error.message.slice(0, 200)}`);
    });
    if (done) break;
    size += value.byteLength;
    if (size > mostBytes) {
      await reader.cancel();
      throw new FetchFailed('failed', `more than ${mostBytes / 1e6} MB`);
    }
    chunks.push(value);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}

/** A byte order mark decides, then the header, then the document's own declaration, then UTF-8 (WHATWG Encoding, 4.2). */
export function decode(bytes: Uint8Array<ArrayBuffer>, contentType: string): string {
  const label = markOf(bytes) ?? /charset\s*=\s*"?([\w-]+)/i.exec(contentType)?.[1] ?? declared(bytes) ?? 'utf-8';
  try {
    return new TextDecoder(label).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}

function markOf([a, b, c]: Uint8Array): string | undefined {
  if (a === 0xef && b === 0xbb && c === 0xbf) return 'utf-8';
  if (a === 0xfe && b === 0xff) return 'utf-16be';
  if (a === 0xff && b === 0xfe) return 'utf-16le';
  return undefined;
}

function declared(bytes: Uint8Array): string | undefined {
  const head = new TextDecoder('latin1').decode(bytes.subarray(0, 1_024));
  return /^<\?xml[^>]*encoding=["']([\w-]+)/.exec(head)?.[1] ?? /<meta[^>]*charset=["']?([\w-]+)/i.exec(head)?.[1];
}
