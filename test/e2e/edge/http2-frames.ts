/** HTTP/2 frames written by hand over TLS, for what no HTTP/2 client would send (RFC 9113; header blocks RFC 7541). */
import { connect, type TLSSocket } from 'node:tls';
import { until } from '../support/until.ts';

export const Frame = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  push: 5,
  ping: 6,
  goaway: 7,
  window: 8,
  continuation: 9,
} as const;

export const END_STREAM = 0x1;
export const END_HEADERS = 0x4;
export const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';

export type HeaderList = readonly (readonly [string, string])[];

export function frame(kind: number, flags: number, stream: number, payload: Buffer | string = ''): Buffer {
  const body = typeof payload === 'string' ? Buffer.from(payload, 'latin1') : payload;
  const head = Buffer.alloc(9);
  head.writeUIntBE(body.length, 0, 3);
  head.writeUInt8(kind, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, body]);
}

/** Every field as a literal without indexing and without Huffman coding (RFC 7541, section 6.2.2). */
export function headerBlock(fields: HeaderList): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), headerString(name), headerString(value)]));
}

function headerString(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  const length: number[] = [];
  let rest = bytes.length;
  if (rest < 127) length.push(rest);
  else {
    length.push(127);
    for (rest -= 127; rest >= 128; rest = Math.floor(rest / 128)) length.push((rest % 128) + 128);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

/** HEADERS, with as many CONTINUATION frames as the block takes. */
export function headers(stream: number, fields: HeaderList, flags = END_STREAM): Buffer {
  const block = headerBlock(fields);
  const pieces: Buffer[] = [];
  for (let at = 0; at === 0 || at < block.length; at += 16_000) pieces.push(block.subarray(at, at + 16_000));
  return Buffer.concat(
    pieces.map((piece, index) => {
      const last = index === pieces.length - 1 ? END_HEADERS : 0;
      return index === 0
        ? frame(Frame.headers, flags | last, stream, piece)
        : frame(Frame.continuation, last, stream, piece);
    }),
  );
}

export function setting(id: number, value: number): Buffer {
  const payload = Buffer.alloc(6);
  payload.writeUInt16BE(id, 0);
  payload.writeUInt32BE(value, 2);
  return frame(Frame.settings, 0, 0, payload);
}

export function uint32(value: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(value, 0);
  return payload;
}

export interface Http2Wire {
  socket: TLSSocket;
  /** Bodies by stream. */
  bodies: Map<number, string>;
  /** Streams whose answer has begun. */
  answered: Set<number>;
  /** Streams that ended with their answer. */
  ended: Set<number>;
  /** Codes of RST_STREAM by stream. */
  resets: Map<number, number>;
  /** Code of the last GOAWAY; undefined: none came. */
  goaway: number | undefined;
  closed: boolean;
  /** Octets of PING that were answered. */
  pongs: number;
  send(...frames: (Buffer | string)[]): void;
  /** Waits until a stream was answered or refused, or the connection ended. */
  settled(stream: number): Promise<void>;
}

/** @param preface what a client says first; RFC 9113, section 3.4 */
export async function openHttp2Wire(
  port: number,
  servername: string,
  preface: Buffer = Buffer.concat([Buffer.from(PREFACE), frame(Frame.settings, 0, 0)]),
): Promise<Http2Wire> {
  const socket = connect({
    host: '127.0.0.1',
    port,
    servername,
    ALPNProtocols: ['h2'],
    rejectUnauthorized: false,
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('secureConnect', () => resolve());
    socket.once('error', reject);
  });
  const wire: Http2Wire = {
    socket,
    bodies: new Map(),
    answered: new Set(),
    ended: new Set(),
    resets: new Map(),
    goaway: undefined,
    closed: false,
    pongs: 0,
    send: (...frames) => {
      for (const bytes of frames) socket.write(bytes);
    },
    settled: async (stream) => {
      await until(() => wire.ended.has(stream) || wire.resets.has(stream) || wire.closed);
    },
  };
  let bytes = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    while (bytes.length >= 9) {
      const length = bytes.readUIntBE(0, 3);
      if (bytes.length < 9 + length) return;
      received(wire, bytes.readUInt8(3), bytes.readUInt8(4), bytes.readUInt32BE(5), bytes.subarray(9, 9 + length));
      bytes = bytes.subarray(9 + length);
    }
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    wire.closed = true;
  });
  wire.send(preface);
  return wire;
}

function received(wire: Http2Wire, kind: number, flags: number, stream: number, payload: Buffer): void {
  if (kind === Frame.headers) wire.answered.add(stream);
  if (kind === Frame.data) wire.bodies.set(stream, (wire.bodies.get(stream) ?? '') + payload.toString('latin1'));
  if (kind === Frame.data || kind === Frame.headers) if ((flags & END_STREAM) !== 0) wire.ended.add(stream);
  if (kind === Frame.reset) wire.resets.set(stream, payload.readUInt32BE(0));
  if (kind === Frame.goaway) wire.goaway = payload.readUInt32BE(4);
  if (kind === Frame.ping && (flags & 1) !== 0) wire.pongs += 1;
}
