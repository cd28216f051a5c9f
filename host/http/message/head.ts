/**
 * Reads request and response heads. This is the boundary where a caller's or a tenant's bytes become fields:
 * anything that two HTTP parsers could read differently is refused (RFC 9112, sections 3 to 6).
 */

import { type Classifier, Field } from './fields.ts';
import type { Framing, MessageHead } from './framing.ts';
import { WireError } from './wire-error.ts';

export interface RequestHead extends MessageHead {
  method: string;
  /** Origin form, raw: what the caller sent, from the first `/`; `*` for OPTIONS. */
  target: string;
  /** Host field as sent, with port; empty on HTTP/1.0 without one. */
  host: string;
  /** A WebSocket handshake. */
  upgrade: boolean;
  forwardedFor: string;
  forwardedProto: string;
  forwardedHost: string;
  requestId: string;
  /** A browser asks for the script of a service worker. */
  serviceWorker: boolean;
  /** What this host's egress says of the tenant that calls; to be authenticated. */
  ownCaller: string;
  /** All other fields that may go on to a handler. */
  fields: string;
}

export interface ResponseHead {
  status: number;
  reason: string;
  framing: Framing;
  /** The other side keeps the connection open after this answer. */
  keepAlive: boolean;
  upgrade: boolean;
  /** Content-Length as sent; answers without a body (HEAD, 304) declare one too. */
  contentLength: string | undefined;
  /** As the handler sent it; empty without. */
  date: string;
  /** Where control answered: the host made it, not a handler. */
  own: boolean;
  /** `set-cookie` values, in order. */
  cookies: string[];
  /** Lines that are only allowed where the tenant has the origin for itself. */
  originFields: string;
  /** Lines that ask the caller to pay or to prove something. */
  challenges: string;
  /** Where control answered: how a 402 may be written again (host/shared/reissue.ts); empty: it may not. */
  reissue: string;
  /** All other fields that may go on to the caller. */
  fields: string;
}

const REQUEST_LINE = /^([A-Z][A-Z-]{0,31}) ([\x21\x22\x24-\x7e\x80-\xff]+) HTTP\/1\.([01])$/;
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?$/;
const FIELD_LINES = /^(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/;
/** An authority of a name, an IPv4 or an IPv6 address (RFC 3986, 3.2.2), with or without a port. */
export const HOST = /^(?:\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::[0-9]{1,5})?$/;
const ABSOLUTE = /^https?:\/\/([^/?]+)(\/.*|\?.*)?$/i;
/** What workerd's HTTP library (hyper, the crate `http`) takes in no URL; the URL Standard escapes it, too. */
const NOT_IN_URL = /[<>`\x80-\xff]/g;
const LENGTH = /^[0-9]{1,15}$/;
const MAX_FIELDS = 256;

const NO_BODY: Framing = { kind: 'none' };
const CHUNKED: Framing = { kind: 'chunked' };
const UNTIL_CLOSE: Framing = { kind: 'close' };

/**
 * @param text the head in latin1, from the first byte of the request line through the line end of the last field
 *   (without the empty line)
 * @throws WireError bad_request, header_too_large, not_implemented
 */
export function parseRequestHead(text: string, classify: Classifier): RequestHead {
  const lineEnd = text.indexOf('\r\n');
  const line = REQUEST_LINE.exec(text.slice(0, lineEnd));
  if (!line) throw new WireError('bad_request', 'The request line is malformed.');
  const head: RequestHead = {
    method: line[1] as string,
    target: line[2] as string,
    host: '',
    version: line[3] === '1' ? '1.1' : '1.0',
    framing: NO_BODY,
    keepAlive: line[3] === '1',
    upgrade: false,
    expectContinue: false,
    acceptsTrailers: false,
    forwardedFor: '',
    forwardedProto: '',
    forwardedHost: '',
    requestId: '',
    serviceWorker: false,
    ownCaller: '',
    fields: '',
  };
  let hosts = 0;
  let length: string | undefined;
  let coding: string | undefined;
  let connection = '';
  let upgrade = '';
  const start = lineEnd + 2;
  checkLines(text, start);
  let kept = '';
  let keptFrom = start;
  let count = 0;
  for (let at = start; at < text.length; ) {
    if (++count > MAX_FIELDS) throw tooMany();
    const colon = text.indexOf(':', at);
    const end = text.indexOf('\r\n', colon);
    const kind = classify(text.slice(at, colon));
    if (kind !== Field.keep) {
      if (keptFrom !== at) kept += text.slice(keptFrom, at);
      keptFrom = end + 2;
      const value = kind === Field.drop ? '' : trim(text, colon + 1, end);
      switch (kind) {
        case Field.host:
          hosts += 1;
          head.host = value;
          break;
        case Field.contentLength:
          if (length !== undefined) throw new WireError('bad_request', 'Content-Length is given twice.');
          length = plain(text, colon, end, value);
          break;
        case Field.transferEncoding:
          if (coding !== undefined) throw new WireError('bad_request', 'Transfer-Encoding is given twice.');
          coding = plain(text, colon, end, value);
          break;
        case Field.connection:
          connection = join(connection, value.toLowerCase());
          break;
        case Field.upgrade:
          upgrade = join(upgrade, value.toLowerCase());
          break;
        case Field.expect:
          if (value.toLowerCase() !== '100-continue')
            throw new WireError('bad_request', 'Only Expect: 100-continue is understood.');
          head.expectContinue = head.version === '1.1';
          break;
        case Field.te:
          if (/(?:^|,)[\t ]*trailers[\t ]*(?:,|$)/i.test(value)) head.acceptsTrailers = true;
          break;
        case Field.forwardedFor:
          head.forwardedFor = join(head.forwardedFor, value);
          break;
        case Field.forwardedProto:
          head.forwardedProto = join(head.forwardedProto, value);
          break;
        case Field.forwardedHost:
          head.forwardedHost = join(head.forwardedHost, value);
          break;
        case Field.requestId:
          head.requestId = value;
          break;
        case Field.serviceWorker:
          head.serviceWorker = true;
          kept += text.slice(at, end + 2);
          break;
        case Field.ownCaller:
          head.ownCaller = value;
          break;
      }
    }
    at = end + 2;
  }
  head.fields = keptFrom === start ? text.slice(start) : kept + text.slice(keptFrom);
  if (hosts > 1) throw new WireError('bad_request', 'Host is given twice.');
  if (hosts === 0 ? head.version === '1.1' : !HOST.test(head.host)) {
    throw new WireError('bad_request', 'The Host header is missing or malformed.');
  }
  checkTarget(head);
  head.framing = requestFraming(head.version, length, coding);
  if (connection !== '') {
    const tokens = connectionTokens(connection);
    if (tokens.includes('close')) head.keepAlive = false;
    else if (tokens.includes('keep-alive')) head.keepAlive = true;
    head.upgrade =
      upgrade === 'websocket' &&
      tokens.includes('upgrade') &&
      head.method === 'GET' &&
      head.version === '1.1' &&
      head.framing === NO_BODY;
    head.fields = withoutNamed(head.fields, tokens);
  }
  return head;
}

/**
 * @param text the head in latin1, as for `parseRequestHead`
 * @param method of the request: an answer to HEAD has no body
 * @throws WireError upstream_failed
 */
export function parseResponseHead(text: string, method: string, classify: Classifier): ResponseHead {
  const lineEnd = text.indexOf('\r\n');
  const line = STATUS_LINE.exec(text.slice(0, lineEnd));
  if (!line) throw new WireError('upstream_failed', 'The status line is malformed.');
  const status = Number(line[2]);
  const head: ResponseHead = {
    status,
    reason: line[3] ?? '',
    framing: NO_BODY,
    keepAlive: line[1] === '1',
    upgrade: false,
    contentLength: undefined,
    date: '',
    own: false,
    cookies: [],
    originFields: '',
    challenges: '',
    reissue: '',
    fields: '',
  };
  let length: string | undefined;
  let coding: string | undefined;
  let connection = '';
  const start = lineEnd + 2;
  checkLines(text, start);
  let kept = '';
  let keptFrom = start;
  let count = 0;
  for (let at = start; at < text.length; ) {
    if (++count > MAX_FIELDS) throw tooMany();
    const colon = text.indexOf(':', at);
    const end = text.indexOf('\r\n', colon);
    const kind = classify(text.slice(at, colon));
    if (kind !== Field.keep) {
      if (keptFrom !== at) kept += text.slice(keptFrom, at);
      keptFrom = end + 2;
      const value = kind === Field.drop ? '' : trim(text, colon + 1, end);
      switch (kind) {
        case Field.contentLength:
          if (length !== undefined && length !== value)
            throw new WireError('upstream_failed', 'Content-Length is given twice.');
          length = value;
          break;
        case Field.transferEncoding:
          coding = join(coding ?? '', value);
          break;
        case Field.connection:
          connection = join(connection, value.toLowerCase());
          break;
        case Field.upgrade:
          head.upgrade = value.toLowerCase() === 'websocket';
          break;
        case Field.date:
          head.date = value;
          break;
        case Field.ownAnswer:
          head.own = true;
          break;
        case Field.reissue:
          head.reissue = value;
          break;
        case Field.setCookie:
          head.cookies.push(value);
          break;
        case Field.sharedOrigin:
          head.originFields += `${text.slice(at, end)}\r\n`;
          break;
        case Field.challenge:
          head.challenges += `${text.slice(at, end)}\r\n`;
          break;
      }
    }
    at = end + 2;
  }
  head.fields = keptFrom === start ? text.slice(start) : kept + text.slice(keptFrom);
  if (connection !== '') {
    const tokens = connectionTokens(connection);
    if (tokens.includes('close')) head.keepAlive = false;
    else if (tokens.includes('keep-alive')) head.keepAlive = true;
    head.fields = withoutNamed(head.fields, tokens);
  }
  head.contentLength = length;
  head.framing = responseFraming(status, method, length, coding);
  if (head.framing.kind === 'close') head.keepAlive = false;
  return head;
}

function responseFraming(
  status: number,
  method: string,
  length: string | undefined,
  coding: string | undefined,
): Framing {
  if (length !== undefined && (coding !== undefined || !LENGTH.test(length))) {
    throw new WireError('upstream_failed', 'The answer has no certain length.');
  }
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') {
    throw new WireError('upstream_failed', 'The answer has an unknown transfer coding.');
  }
  if (method === 'HEAD' || status < 200 || status === 204 || status === 304) return NO_BODY;
  if (coding !== undefined) return CHUNKED;
  if (length !== undefined) return { kind: 'length', length: Number(length) };
  return UNTIL_CLOSE;
}

function requestFraming(version: string, length: string | undefined, coding: string | undefined): Framing {
  if (coding !== undefined) {
    if (length !== undefined) throw new WireError('bad_request', 'Content-Length and Transfer-Encoding together.');
    if (version === '1.0') throw new WireError('bad_request', 'HTTP/1.0 has no Transfer-Encoding.');
    if (coding.toLowerCase() !== 'chunked')
      throw new WireError('not_implemented', 'Only Transfer-Encoding: chunked is understood.');
    return CHUNKED;
  }
  if (length === undefined) return NO_BODY;
  if (!LENGTH.test(length)) throw new WireError('bad_request', 'Content-Length is malformed.');
  return { kind: 'length', length: Number(length) };
}

/** Absolute form is legal for any request; it is accepted where it says the same as the Host field. */
function checkTarget(head: RequestHead): void {
  // Some clients send UTF-8 as it is; readers after us refuse that. Escaped, it names the same path.
  if (head.target.search(NOT_IN_URL) >= 0) {
    head.target = head.target.replaceAll(NOT_IN_URL, (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase()}`);
  }
  if (head.target.charCodeAt(0) === 0x2f) return;
  if (head.target === '*' && head.method === 'OPTIONS') return;
  const absolute = ABSOLUTE.exec(head.target);
  if (!absolute || absolute[1]?.toLowerCase() !== head.host.toLowerCase()) {
    throw new WireError('bad_request', 'The request target is neither a path nor the URL of this host.');
  }
  const rest = absolute[2] ?? '/';
  head.target = rest.startsWith('/') ? rest : `/${rest}`;
}

/** Everything after the first line must be lines of a name, a colon and a value without control characters. */
function checkLines(text: string, start: number): void {
  if (start !== text.length && !FIELD_LINES.test(text.slice(start))) {
    throw new WireError('bad_request', 'A header line is malformed.');
  }
}

function tooMany(): WireError {
  return new WireError('header_too_large', `At most ${MAX_FIELDS} header lines are read.`);
}

/** Readers disagree on tabs around the fields that frame a body. */
function plain(text: string, colon: number, end: number, value: string): string {
  const tab = text.indexOf('\t', colon);
  if (tab >= 0 && tab < end) throw new WireError('bad_request', 'A framing header holds a tab.');
  return value;
}

function trim(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && (text.charCodeAt(start) === 0x20 || text.charCodeAt(start) === 9)) start += 1;
  while (end > start && (text.charCodeAt(end - 1) === 0x20 || text.charCodeAt(end - 1) === 9)) end -= 1;
  return text.slice(start, end);
}

function connectionTokens(connection: string): string[] {
  return connection === 'keep-alive' || connection === 'close'
    ? [connection]
    : connection.split(',').map((token) => token.trim());
}

const CONNECTION_OPTIONS = new Set(['close', 'keep-alive', 'upgrade', 'te', '']);

/** Fields that `Connection` names end at this hop. Nothing that the host sets is in the block, so none of it can be named away. */
function withoutNamed(block: string, tokens: string[]): string {
  const named = tokens.filter((token) => !CONNECTION_OPTIONS.has(token));
  if (named.length === 0) return block;
  let kept = '';
  for (let at = 0; at < block.length; ) {
    const end = block.indexOf('\r\n', at) + 2;
    const name = block.slice(at, block.indexOf(':', at)).toLowerCase();
    if (!named.includes(name)) kept += block.slice(at, end);
    at = end;
  }
  return kept;
}

function join(before: string, value: string): string {
  return before === '' ? value : `${before}, ${value}`;
}
