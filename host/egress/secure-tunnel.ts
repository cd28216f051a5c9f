/**
 * `connect()` with TLS. workerd cannot start TLS behind a proxy, so it is spoken here, when the handler says so. What goes
 * through the connection before that is in frames: nothing that a server sends in clear can pass for what it sends by TLS.
 * The other end is host/bindings/sockets/secure-sockets.js.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Problem } from '../shared/problem.ts';
import type { Outbound } from './exchange.ts';
import { type Authorities, secure } from './secure.ts';
import { dial, join } from './tunnel.ts';

/** Frames begin with a byte that says what they are, and the length of the rest, 32 bits. */
const HEADER_BYTES = 5;
/** Both ways: bytes of the connection in clear. */
const DATA = 0;
/** From the handler: TLS from here on, for the name that follows, or the one that it connected to. */
const START = 1;
/** To the handler, without bytes of its own. */
const SECURE = 1;
const CONNECTED = 3;
/** To the handler, the last one, with a text. */
const FAILED = 2;

const LONGEST_NAME = 253;
/** A handler that has been told of a failure closes the connection within this, ms. */
const LINGER_MS = 1_000;
const SERVER_NAME = /^[\w.:-]+$/;

/** Connections that this module has answered in frames are told of failures in one. */
export class FramedClient {
  readonly stream: Duplex;
  #framed = true;

  constructor(stream: Duplex) {
    this.stream = stream;
    stream.on('error', () => undefined);
    stream.write('HTTP/1.1 200 OK\r\n\r\n');
  }

  /** @returns false once the handler should wait for `drain` */
  send(type: number, bytes: Uint8Array = new Uint8Array(0)): boolean {
    const header = Buffer.alloc(HEADER_BYTES);
    header[0] = type;
    header.writeUInt32BE(bytes.length, 1);
    this.stream.write(header);
    return bytes.length === 0 || this.stream.write(bytes);
  }

  /** Bytes are as they are from now on. */
  secured(): void {
    this.send(SECURE);
    this.#framed = false;
  }

  fail(problem: Problem): void {
    if (this.stream.destroyed) return;
    if (!this.#framed) {
      this.stream.destroy();
      return;
    }
    this.send(FAILED, Buffer.from(problem.message));
    this.end();
  }

  /** What was written is sent first, and read, before what the handler still sends is cut off. */
  end(): void {
    const { stream } = this;
    stream.end();
    stream.resume();
    const late = setTimeout(() => stream.destroy(), LINGER_MS).unref();
    stream.once('close', () => clearTimeout(late));
  }
}

/**
 * Settles when the connection ended.
 * @throws Problem when it did not come about, or TLS was not established
 */
export async function secureTunnel(
  outbound: Outbound,
  client: FramedClient,
  head: Buffer,
  authorities: Authorities,
): Promise<void> {
  const upstream = await dial(outbound);
  try {
    client.send(CONNECTED);
    outbound.stands();
    const order = await plainPhase(outbound, client, head, upstream);
    if (!order) return client.end();
    // Read, but not passed on: it came before TLS.
    if (upstream.readableLength > 0) {
      throw new Problem('egress_failed', `${outbound.target.name}: the server sent data before TLS was established.`);
    }
    const { target, signal } = outbound;
    if (order.name !== undefined && !SERVER_NAME.test(order.name))
      throw new Problem('bad_request', `${target.name}: expectedServerHostname is not the name of a server.`);
    const secured = await secure(upstream, target, 'verify-full', authorities, signal, order.name);
    client.secured();
    if (order.rest.length > 0) {
      outbound.allowance.count('out', order.rest.length);
      secured.write(order.rest);
    }
    await join(client.stream, secured, outbound);
  } finally {
    upstream.destroy();
  }
}

/** The order to start TLS, with what the handler sent behind it. */
interface Order {
  name: string | undefined;
  rest: Buffer;
}

/** Carries frames. Answers undefined when the connection ended without an order. */
function plainPhase(
  { allowance, signal, target }: Outbound,
  client: FramedClient,
  head: Buffer,
  upstream: Socket,
): Promise<Order | undefined> {
  const { stream } = client;
  return new Promise((resolve, reject) => {
    const frames = new Frames();
    const ended = { client: false, upstream: false };
    const settle = (done: () => void) => {
      clearTimeout(idle);
      signal.removeEventListener('abort', stopped);
      stream.off('data', fromClient).off('end', clientEnded).off('error', over).off('close', over).off('drain', goOn);
      upstream.off('data', fromUpstream).off('end', upstreamEnded).off('error', over).off('close', over);
      upstream.off('drain', sendOn);
      done();
    };
    const over = () => settle(() => resolve(undefined));
    const fail = (problem: unknown) => settle(() => reject(problem));
    const stopped = () => fail(signal.reason);
    const goOn = () => upstream.resume();
    const sendOn = () => stream.resume();
    const count = (direction: 'in' | 'out', bytes: number) => {
      idle.refresh();
      if (allowance.count(direction, bytes)) return true;
      fail(new Problem('egress_limit', 'The hourly allowance of outbound bytes is used up; try again later.'));
      return false;
    };
    function fromClient(chunk: Buffer): void {
      if (!count('out', chunk.length)) return;
      const order = frames.take(chunk, (bytes) => {
        if (!upstream.write(bytes)) stream.pause();
      });
      if (order === 'broken') fail(new Problem('bad_request', `${target.name}: the frames of the handler are broken.`));
      else if (order)
        settle(() => {
          stream.pause();
          upstream.pause();
          resolve(order);
        });
    }
    function fromUpstream(chunk: Buffer): void {
      if (count('in', chunk.length) && !client.send(DATA, chunk)) upstream.pause();
    }
    function clientEnded(): void {
      ended.client = true;
      upstream.end();
      if (ended.upstream) over();
    }
    function upstreamEnded(): void {
      ended.upstream = true;
      stream.end();
      if (ended.client) over();
    }
    const idle = setTimeout(over, allowance.limits.timeoutMs);
    signal.addEventListener('abort', stopped, { once: true });
    stream.on('data', fromClient).once('end', clientEnded).once('error', over).once('close', over).on('drain', goOn);
    upstream.on('data', fromUpstream).once('end', upstreamEnded).once('error', over).once('close', over);
    upstream.on('drain', sendOn);
    if (signal.aborted) return stopped();
    if (head.length > 0) fromClient(head);
  });
}

/** Takes the frames of a handler apart, in whatever pieces they come. */
export class Frames {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  /** Bytes of the present frame that are to come. */
  #left = 0;
  readonly #name: Buffer[] = [];

  /** @param data called for each piece of what is to be sent in clear */
  take(chunk: Buffer, data: (bytes: Buffer) => void): Order | 'broken' | undefined {
    let at = 0;
    for (;;) {
      const begins = this.#headerBytes < HEADER_BYTES;
      if (begins) {
        const copied = chunk.copy(this.#header, this.#headerBytes, at);
        at += copied;
        this.#headerBytes += copied;
        if (this.#headerBytes < HEADER_BYTES) return undefined;
        this.#left = this.#header.readUInt32BE(1);
      }
      const isOrder = this.#header[0] === START;
      if (begins && (isOrder ? this.#left > LONGEST_NAME : this.#header[0] !== DATA)) return 'broken';
      const part = chunk.subarray(at, at + this.#left);
      at += part.length;
      this.#left -= part.length;
      if (isOrder) this.#name.push(part);
      else if (part.length > 0) data(part);
      if (this.#left > 0) return undefined;
      if (isOrder) return { name: Buffer.concat(this.#name).toString() || undefined, rest: chunk.subarray(at) };
      this.#headerBytes = 0;
    }
  }
}
