/**
 * An HTTP/2 request's header list as a request head. It is written as HTTP/1.1 would write it and read by the same
 * strict parser: what could be taken for something else one hop on is refused here as it is there.
 */

import { FIELD_NAME, FIELD_VALUE, requestField } from '../message/fields.ts';
import { parseRequestHead, type RequestHead } from '../message/head.ts';
import { WireError } from '../message/wire-error.ts';

/** RFC 9113, section 8.2.2: these have no meaning in HTTP/2 and make a request malformed. */
const CONNECTION_FIELDS = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);
const METHOD = /^[A-Z][A-Z-]{0,31}$/;

/**
 * @param rawHeaders names and values in turn
 * @param bodiless the header frame ends the stream
 * @param maxBytes of names and values; a few bytes on the wire may name a long field many times
 * @throws WireError
 */
export function requestHeadOf(rawHeaders: readonly string[], bodiless: boolean, maxBytes: number): RequestHead {
  let method = '';
  let path = '';
  let authority = '';
  let host = '';
  let length: string | undefined;
  let cookies = '';
  let lines = '';
  let bytes = 0;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    const value = rawHeaders[i + 1] as string;
    bytes += name.length + value.length;
    if (bytes > maxBytes) throw new WireError('header_too_large', `A request's headers may have ${maxBytes} bytes.`);
    if (!FIELD_VALUE.test(value)) throw new WireError('bad_request', 'A header value is malformed.');
    if (name === ':method') method = value;
    else if (name === ':path') path = value;
    else if (name === ':authority') authority = value;
    else if (name === ':scheme') continue;
    else if (!FIELD_NAME.test(name) || name !== name.toLowerCase() || CONNECTION_FIELDS.has(name)) {
      throw new WireError('bad_request', 'A header has no place in HTTP/2.');
    } else if (name === 'host') host = value;
    else if (name === 'content-length') {
      if (length !== undefined) throw new WireError('bad_request', 'Content-Length is given twice.');
      length = value;
    } else if (name === 'cookie') {
      // RFC 9113, section 8.2.3: crumbs are put together where they leave HTTP/2.
      cookies = cookies === '' ? value : `${cookies}; ${value}`;
    } else lines += `${name}: ${value}\r\n`;
  }
  if (!METHOD.test(method)) throw new WireError('bad_request', 'The method is malformed.');
  if (authority !== '' && host !== '' && authority.toLowerCase() !== host.toLowerCase()) {
    throw new WireError('bad_request', ':authority and Host differ.');
  }
  if (!path.startsWith('/') && path !== '*') throw new WireError('bad_request', ':path is not a path.');
  if (cookies !== '') lines += `cookie: ${cookies}\r\n`;
  if (length !== undefined) lines += `content-length: ${length}\r\n`;
  else if (!bodiless) lines += 'transfer-encoding: chunked\r\n';
  const head = parseRequestHead(`${method} ${path} HTTP/1.1\r\nhost: ${authority || host}\r\n${lines}`, requestField);
  if (bodiless && head.framing.kind === 'length' && head.framing.length > 0) {
    throw new WireError('bad_request', 'The body is shorter than its Content-Length.');
  }
  if (bodiless) head.framing = { kind: 'none' };
  head.version = '2';
  head.upgrade = false;
  return head;
}
