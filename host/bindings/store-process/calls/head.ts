/**
 * Heads of the requests that workerd's bindings send. They are read less strictly than a caller's: keys and metadata
 * travel in fields as UTF-8 and may hold DEL, and nothing is forwarded, so there is no second reader to confuse.
 */
import type { Framing, MessageHead } from '../../../http/message/framing.ts';
import { WireError } from '../../../http/message/wire-error.ts';

export interface CallHead extends MessageHead {
  method: string;
  /** Path and query, as sent; of a whole URL (RFC 9112, 3.2.2) without scheme and authority. */
  target: string;
  /** Scheme and authority, where the request named a whole URL. workerd does, whatever a handler asks of it; the host's own calls do not. */
  origin: string | undefined;
  /** By names in lower case; values have one character for each byte. Of fields given twice the first. */
  fields: ReadonlyMap<string, string>;
}

const REQUEST_LINE = /^([A-Z]{1,16}) (https?:\/\/[^ /?]*)?(\/[^ ]*) HTTP\/1\.([01])\r\n/;
const FIELD_LINES = /^(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\xff]*\r\n)*$/;
const LENGTH = /^[0-9]{1,15}$/;

/**
 * @param text in latin1, through the line end of the last field
 * @throws WireError bad_request
 */
export function parseCallHead(text: string): CallHead {
  const line = REQUEST_LINE.exec(text);
  if (!line) throw new WireError('bad_request', 'The request line is malformed.');
  const [{ length: start }, method = '', origin, target = '', minor] = line;
  if (!FIELD_LINES.test(text.slice(start))) throw new WireError('bad_request', 'A header line is malformed.');
  const fields = new Map<string, string>();
  for (let at = start; at < text.length; ) {
    const colon = text.indexOf(':', at);
    const end = text.indexOf('\r\n', colon);
    const name = text.slice(at, colon).toLowerCase();
    if (!fields.has(name)) fields.set(name, text.slice(colon + 1, end).trim());
    else if (name === 'content-length') throw new WireError('bad_request', 'Content-Length is given twice.');
    at = end + 2;
  }
  return {
    method,
    target,
    origin,
    fields,
    version: minor === '1' ? '1.1' : '1.0',
    framing: framing(fields.get('content-length'), fields.get('transfer-encoding')),
    keepAlive: minor === '1' && fields.get('connection')?.toLowerCase() !== 'close',
    expectContinue: fields.get('expect')?.toLowerCase() === '100-continue',
    acceptsTrailers: false,
  };
}

function framing(length: string | undefined, coding: string | undefined): Framing {
  if (coding === undefined && length === undefined) return { kind: 'none' };
  if (coding === undefined && length !== undefined && LENGTH.test(length))
    return { kind: 'length', length: Number(length) };
  if (length === undefined && coding?.toLowerCase() === 'chunked') return { kind: 'chunked' };
  throw new WireError('bad_request', 'The length of the body is not certain.');
}
