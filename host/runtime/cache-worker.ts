/**
 * What `caches.default` and `caches.open()` talk to: a worker of ours beside the tenant's, in the same process. It keeps
 * answers in memory, within a budget, for as long as the instance lives; a cache may forget at any time.
 *
 * workerd's protocol (src/workerd/api/cache.c++): GET with the URL is a match, answered with `cf-cache-status`; PUT brings
 * an HTTP response as its body; PURGE deletes; `cf-cache-namespace` names a cache that was opened by name.
 */

/** What all entries of an instance take, bytes; the oldest go first. */
export const CACHE_BYTES = 16 * 1_048_576;
/** The largest entry, bytes. */
export const CACHE_ENTRY_BYTES = 4 * 1_048_576;

export const CACHE_WORKER = `
const entries = new Map();
let total = 0;

function drop(key) {
  const entry = entries.get(key);
  if (!entry) return false;
  entries.delete(key);
  total -= entry.bytes;
  return true;
}

/** Seconds that a shared cache may keep it; undefined: not at all (RFC 9111, 3). */
function lifetime(headers) {
  const control = (headers.get('cache-control') ?? '').toLowerCase();
  const hidesCookie = /private="?set-cookie/.test(control);
  if (headers.has('set-cookie') && !hidesCookie) return undefined;
  if (/no-store|no-cache/.test(control) || (/private/.test(control) && !hidesCookie) || headers.get('vary') === '*') return undefined;
  const age = /s-maxage="?(\\d+)/.exec(control) ?? /max-age="?(\\d+)/.exec(control);
  if (age) return Number(age[1]);
  return headers.has('expires') ? (Date.parse(headers.get('expires')) - Date.now()) / 1000 || 0 : 0;
}

async function wholeBody(stream) {
  const pieces = [];
  let size = 0;
  for await (const piece of stream) {
    size += piece.length;
    if (size > ${CACHE_ENTRY_BYTES}) return undefined;
    pieces.push(piece);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

/** An HTTP response as bytes. */
function parse(bytes) {
  let end = 0;
  while (end < bytes.length && !(bytes[end] === 13 && bytes[end + 1] === 10 && bytes[end + 2] === 13 && bytes[end + 3] === 10)) end++;
  const [first, ...lines] = new TextDecoder('latin1').decode(bytes.subarray(0, end)).split('\\r\\n');
  const headers = new Headers();
  for (const line of lines) {
    const colon = line.indexOf(':');
    headers.append(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return { status: Number(first.split(' ')[1]), headers, body: bytes.subarray(end + 4) };
}

async function put(key, request) {
  const bytes = await wholeBody(request.body);
  if (!bytes) return new Response(null, { status: 413 });
  const { status, headers, body } = parse(bytes);
  const seconds = lifetime(headers);
  if (seconds === undefined) return new Response(null, { status: 413 });
  drop(key);
  if (seconds <= 0) return new Response(null, { status: 204 });
  if (/private="?set-cookie/.test((headers.get('cache-control') ?? '').toLowerCase())) headers.delete('set-cookie');
  headers.delete('transfer-encoding');
  headers.set('content-length', String(body.length));
  entries.set(key, { status, headers, body, bytes: bytes.length, until: Date.now() + seconds * 1000 });
  total += bytes.length;
  for (const oldest of entries.keys()) {
    if (total <= ${CACHE_BYTES}) break;
    drop(oldest);
  }
  return new Response(null, { status: 204 });
}

function match(key, asked) {
  const entry = entries.get(key);
  if (!entry || entry.until <= Date.now()) {
    drop(key);
    return new Response(null, { status: 504, headers: { 'cf-cache-status': 'MISS' } });
  }
  entries.delete(key);
  entries.set(key, entry);
  const headers = new Headers(entry.headers);
  headers.set('cf-cache-status', 'HIT');
  const weak = (tag) => tag.trim().replace(/^W\\//, '');
  const etag = headers.get('etag');
  const known = asked.get('if-none-match');
  const since = Date.parse(asked.get('if-modified-since') ?? '');
  const unchanged = known !== null ? etag !== null && known.split(',').some((tag) => tag.trim() === '*' || weak(tag) === weak(etag)) : Date.parse(headers.get('last-modified') ?? '') <= since;
  if (unchanged) return new Response(null, { status: 304, headers });
  const range = /^bytes=(\\d*)-(\\d*)$/.exec(asked.get('range') ?? '');
  const size = entry.body.length;
  if (range && entry.status === 200 && (range[1] || range[2])) {
    const from = range[1] ? Number(range[1]) : Math.max(0, size - Number(range[2]));
    const to = range[1] && range[2] ? Math.min(Number(range[2]), size - 1) : size - 1;
    if (from > to || from >= size) return new Response(null, { status: 416, headers: { 'cf-cache-status': 'HIT', 'content-range': 'bytes */' + size } });
    headers.set('content-range', 'bytes ' + from + '-' + to + '/' + size);
    headers.set('content-length', String(to - from + 1));
    return new Response(entry.body.slice(from, to + 1), { status: 206, headers });
  }
  return new Response(entry.body, { status: entry.status, headers });
}

export default {
  async fetch(request) {
    const key = (request.headers.get('cf-cache-namespace') ?? '') + ' ' + request.url;
    if (request.method === 'PUT') return put(key, request);
    if (request.method === 'PURGE') return new Response(null, { status: drop(key) ? 200 : 404 });
    return match(key, request.headers);
  },
};
`;
