// TLS for connect() of cloudflare:sockets, node:net and node:tls. workerd (1.20261117.1) cannot speak TLS over an HTTP
// proxy, so the host's way out does it: this module asks for it. Until TLS is established, what goes through the
// connection is in frames: what a server says before TLS is never taken for what it says after. host/egress/secure-tunnel.ts
// is the other end.
import inner from 'cloudflare-internal:sockets';

const SUFFIX = '.tls.turnpike.internal';
const DATA = 0;
const START = 1;
const SECURE = 1;
const FAILED = 2;
const CONNECTED = 3;
const HEADER_BYTES = 5;
const READ_BYTES = 65_536;
/** No failure is described in more. */
const MOST_TEXT = 4_096;

const connect = inner.connect;

inner.connect = function connectSecurely(address, options) {
  const mode = options?.secureTransport;
  const place = mode === 'on' || mode === 'starttls' ? placeOf(address) : undefined;
  if (place === undefined) return connect.call(inner, address, options);
  const carrier = connect.call(inner, place, { allowHalfOpen: true });
  return new Socket(new Connection(carrier, options, mode, place.replace(SUFFIX, '')).side);
};

/** A binding of workerd loads this module and makes nothing. */
export default function nothing() {
  return undefined;
}

/** The address as the way out recognises it; undefined: it is workerd's own business, or no address at all. */
function placeOf(address) {
  const text = typeof address === 'string' ? address : `${address?.hostname}:${address?.port}`;
  const [, host, port] = /^(.+):(\d{1,5})$/.exec(text) ?? [];
  // Names and addresses that workerd gives to bindings.
  if (host === undefined || host.endsWith('.hyperdrive.local') || host.startsWith('240.1.')) return undefined;
  if (host.includes(':')) {
    const plain = host.replace(/^\[(.*)\]$/, '$1');
    return /^[0-9a-fA-F:.]+$/.test(plain) ? `${plain.replaceAll(':', '-')}.v6${SUFFIX}:${port}` : undefined;
  }
  return /[\s/?#@\\[\]]/.test(host) ? undefined : `${host}${SUFFIX}:${port}`;
}

/** One connection to the way out, on which one socket follows another when TLS starts. */
class Connection {
  constructor(carrier, { allowHalfOpen = false }, mode, remoteAddress) {
    this.info = { remoteAddress };
    this.carrier = carrier;
    this.allowHalfOpen = allowHalfOpen;
    this.reader = carrier.readable.getReader({ mode: 'byob' });
    this.writer = carrier.writable.getWriter();
    this.buffer = new ArrayBuffer(READ_BYTES);
    this.rest = new Uint8Array(0);
    this.over = false;
    /** Why nothing can be sent any more. */
    this.broken = undefined;
    /** The order to start TLS, once there is one. */
    this.upgrade = undefined;
    this.connected = Promise.withResolvers();
    this.side = new Side(this, mode);
    quiet(carrier.opened);
    quiet(carrier.closed);
    quiet(this.writer.closed);
    quiet(this.connected.promise);
    if (mode === 'on') {
      this.prepare(this.side, undefined);
      this.connected.promise.then(
        () => this.order(),
        () => undefined,
      );
    } else {
      this.connected.promise.then(
        () => this.side.opened.resolve(this.info),
        () => undefined,
      );
      void this.sendFrames(this.side);
    }
    void this.receiveFrames(mode === 'on' ? undefined : this.side);
  }

  /** @returns bytes, or undefined at the end of the stream */
  async read() {
    if (this.rest.length > 0) {
      const { rest } = this;
      this.rest = new Uint8Array(0);
      return rest;
    }
    const { value, done } = await this.reader.read(new Uint8Array(this.buffer));
    if (value) this.buffer = value.buffer;
    return done ? undefined : value;
  }

  /** @returns that many bytes, a copy; undefined where the stream ends before */
  async take(length) {
    const taken = new Uint8Array(length);
    for (let at = 0; at < length; ) {
      const bytes = await this.read();
      if (!bytes) return undefined;
      const part = bytes.subarray(0, length - at);
      taken.set(part, at);
      at += part.length;
      if (part.length < bytes.length) this.rest = bytes.slice(part.length);
    }
    return taken;
  }

  /** What comes before TLS, for the first socket. */
  async receiveFrames(plain) {
    try {
      for (;;) {
        const header = await this.take(HEADER_BYTES);
        if (!header) return await this.endOfFrames(plain);
        const type = header[0];
        const length = new DataView(header.buffer).getUint32(1);
        if (type === CONNECTED) {
          this.connected.resolve();
        } else if (type === FAILED) {
          const text = await this.take(Math.min(length, MOST_TEXT));
          throw new Error(new TextDecoder().decode(text));
        } else if (type === SECURE && this.upgrade?.sent) {
          this.upgrade.done.resolve();
          return;
        } else if (type === DATA && plain && !this.upgrade) {
          await this.passOn(plain, length);
        } else {
          throw early();
        }
      }
    } catch (error) {
      this.fail(error);
    }
  }

  async passOn(plain, length) {
    for (let left = length; left > 0; ) {
      const bytes = await this.read();
      if (!bytes) throw new Error('The connection was closed in the middle of a message.');
      const part = bytes.subarray(0, left);
      if (part.length < bytes.length) this.rest = bytes.slice(part.length);
      left -= part.length;
      await plain.deliver(part).catch((error) => {
        throw this.upgrade ? early() : error;
      });
    }
  }

  async endOfFrames(plain) {
    if (this.broken) throw this.broken;
    if (this.upgrade || !plain) throw new Error('The connection was closed before TLS was established.');
    this.connected.reject(new Error('The connection was closed.'));
    await plain.ended();
  }

  /** What the first socket sends; the order to start TLS comes after all of it. */
  async sendFrames(plain) {
    try {
      await plain.each((bytes) => this.writer.write(framed(DATA, bytes)));
      if (this.upgrade) this.order();
      else await this.writer.close();
    } catch (error) {
      // The way out ends the connection when it has said why: that says more.
      this.broken ??= error;
    }
  }

  order() {
    const { name, plain } = this.upgrade;
    this.upgrade.sent = true;
    this.writer.write(framed(START, new TextEncoder().encode(name ?? ''))).then(
      () => plain?.closed.resolve(),
      (error) => {
        this.broken ??= error;
      },
    );
  }

  /** @returns the side that goes on */
  startTls(name) {
    const plain = this.side;
    this.side = new Side(this, 'on');
    this.prepare(this.side, name, plain);
    plain.handOver();
    return this.side;
  }

  /** @param plain the side before: some clients (postgres 3.4) take it for closed where TLS has not been asked for yet */
  prepare(side, name, plain) {
    this.upgrade = { name, done: Promise.withResolvers(), sent: false, plain };
    this.upgrade.done.promise.then(
      () => this.carry(side),
      () => undefined,
    );
  }

  /** From the time when TLS is established, bytes are as they are. */
  async carry(side) {
    side.opened.resolve(this.info);
    const sent = side.each((bytes) => this.writer.write(bytes)).then(() => this.writer.close());
    const received = (async () => {
      for (;;) {
        const bytes = await this.read();
        if (!bytes) return await side.ended();
        await side.deliver(bytes);
      }
    })();
    await Promise.all([sent, received]).then(
      () => this.close(),
      (error) => this.fail(error),
    );
  }

  fail(error) {
    if (this.over) return;
    this.over = true;
    this.connected.reject(error);
    this.upgrade?.done.reject(error);
    this.upgrade?.plain?.closed.resolve();
    this.side.fail(error);
    this.release(error);
  }

  /** What was written is sent first. */
  async close() {
    if (this.over) return;
    this.over = true;
    const closed = new Error('The socket was closed.');
    this.connected.reject(closed);
    this.upgrade?.done.reject(closed);
    await this.writer.close().catch(() => undefined);
    this.upgrade?.plain?.closed.resolve();
    this.side.finish();
    this.release(closed);
  }

  release(reason) {
    quiet(this.reader.cancel(reason));
    quiet(this.writer.abort(reason));
    quiet(this.carrier.close());
  }
}

function framed(type, bytes) {
  const frame = new Uint8Array(HEADER_BYTES + bytes.length);
  frame[0] = type;
  new DataView(frame.buffer).setUint32(1, bytes.length);
  frame.set(bytes, HEADER_BYTES);
  return frame;
}

function early() {
  return new Error('The server sent data before TLS was established; the connection was closed.');
}

function quiet(promise) {
  promise.catch(() => undefined);
}

/** The streams of one socket, as this module holds them. */
class Side {
  incoming = new IdentityTransformStream();
  outgoing = new IdentityTransformStream();
  opened = Promise.withResolvers();
  closed = Promise.withResolvers();
  upgraded = false;
  #writer = this.incoming.writable.getWriter();
  #reader = this.outgoing.readable.getReader({ mode: 'byob' });
  #buffer = new ArrayBuffer(READ_BYTES);

  constructor(connection, mode) {
    this.connection = connection;
    this.mode = mode;
    quiet(this.opened.promise);
    quiet(this.closed.promise);
    quiet(this.#writer.closed);
  }

  /** Settles when the handler has read it. */
  deliver(bytes) {
    return this.#writer.write(bytes);
  }

  /** The other end sends no more. */
  async ended() {
    quiet(this.#writer.close());
    if (!this.connection.allowHalfOpen) await this.connection.close();
  }

  /** Calls for all that the handler writes. */
  async each(send) {
    for (;;) {
      const { value, done } = await this.#reader.read(new Uint8Array(this.#buffer));
      if (value) this.#buffer = value.buffer;
      if (done) return;
      await send(value);
    }
  }

  /** Another socket goes on with the connection. What the handler has not read fails to be delivered. */
  handOver() {
    this.upgraded = true;
    quiet(this.incoming.readable.cancel());
    quiet(this.outgoing.writable.close());
  }

  fail(error) {
    this.opened.reject(error);
    this.closed.reject(error);
    quiet(this.#writer.abort(error));
    quiet(this.#reader.cancel(error));
  }

  /** The handler, or the other end, is done with it. */
  finish() {
    this.opened.reject(new Error('The socket was closed.'));
    this.closed.resolve();
    quiet(this.#writer.close());
    quiet(this.#reader.cancel());
  }
}

/** What connect() answers, with the members of workerd's own. */
class Socket {
  #side;

  constructor(side) {
    this.#side = side;
  }

  get readable() {
    return this.#side.incoming.readable;
  }
  get writable() {
    return this.#side.outgoing.writable;
  }
  get opened() {
    return this.#side.opened.promise;
  }
  get closed() {
    return this.#side.closed.promise;
  }
  get upgraded() {
    return this.#side.upgraded;
  }
  get secureTransport() {
    return this.#side.mode;
  }

  async close() {
    await this.#side.connection.close();
    return this.#side.closed.promise;
  }

  startTls(options) {
    const side = this.#side;
    if (side.mode === 'on') throw new TypeError('Cannot startTls on a TLS socket.');
    if (side.upgraded) throw new TypeError('startTls has already been called on this socket.');
    if (this.readable.locked || this.writable.locked) {
      throw new TypeError(
        'startTls needs both streams of the socket: release the locks of their reader and writer first.',
      );
    }
    const name = options?.expectedServerHostname;
    return new Socket(side.connection.startTls(name === undefined ? undefined : `${name}`));
  }
}
