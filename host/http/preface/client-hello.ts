/**
 * Looks into a TLS ClientHello (RFC 8446, section 4.1.2) for the application protocols it offers. Only decides who
 * answers the connection: the bytes are read again, and checked, by the TLS stack.
 */

const HANDSHAKE = 0x16;
const CLIENT_HELLO = 1;
const ALPN = 16;
const RANDOM_BYTES = 32;
/** A ClientHello that needs more is not one that is asked for here. */
export const MAX_HELLO_BYTES = 16_389;

/** @returns the offered protocols, `incomplete` until the first record is here, `other` for what is no ClientHello */
export function offeredProtocols(bytes: Buffer): string[] | 'incomplete' | 'other' {
  if (bytes.length > 0 && bytes[0] !== HANDSHAKE) return 'other';
  if (bytes.length < 5) return 'incomplete';
  const recordEnd = 5 + bytes.readUInt16BE(3);
  if (recordEnd > MAX_HELLO_BYTES) return 'other';
  if (bytes.length < recordEnd) return 'incomplete';
  try {
    return readHello(bytes.subarray(5, recordEnd));
  } catch (error) {
    // Lengths that point outside the record.
    if (error instanceof RangeError) return 'other';
    throw error;
  }
}

function readHello(hello: Buffer): string[] | 'other' {
  if (hello.readUInt8(0) !== CLIENT_HELLO) return 'other';
  let at = 4 + 2 + RANDOM_BYTES;
  at += 1 + hello.readUInt8(at);
  at += 2 + hello.readUInt16BE(at);
  at += 1 + hello.readUInt8(at);
  const end = at + 2 + hello.readUInt16BE(at);
  at += 2;
  while (at < end) {
    const kind = hello.readUInt16BE(at);
    const length = hello.readUInt16BE(at + 2);
    at += 4;
    if (kind === ALPN) return readNames(hello, at + 2, at + length);
    at += length;
  }
  return [];
}

function readNames(hello: Buffer, start: number, end: number): string[] {
  const names: string[] = [];
  for (let at = start; at < end; ) {
    const length = hello.readUInt8(at);
    names.push(hello.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return names;
}
