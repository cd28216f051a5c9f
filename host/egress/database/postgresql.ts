/**
 * PostgreSQL (protocol 3.0, https://www.postgresql.org/docs/current/protocol-message-formats.html). A client has a
 * connection of the server for itself. When it leaves with nothing open, the connection is reset (DISCARD ALL) and kept
 * for the next client that asks for the same settings.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Session } from './connections.ts';
import { LogIn } from './postgresql-login.ts';
import type { Protocol, Visit } from './protocol.ts';
import { relay } from './relay.ts';
import { failed, int32, readExactly, ServerRefusal, text, within } from './wire.ts';

const PROTOCOL_3 = 196_608;
const CANCEL = 80_877_102;
const SSL_REQUEST = 80_877_103;
const GSS_REQUEST = 80_877_104;
/** As the server itself has it, bytes. */
const MOST_STARTUP_BYTES = 10_000;
/** Of one message, and of all together, until the server is ready, bytes. */
const MOST_MESSAGE_BYTES = 65_536;
const MOST_LOGIN_BYTES = 262_144;
const RESET_MS = 5_000;

interface PostgresSession extends Session {
  /** Of the server's process, by which queries are cancelled. */
  key: Buffer;
  /** ParameterStatus messages: what a client is told at its start. */
  parameters: Buffer;
}

/** What cancels queries of clients that are connected: the generation of their database, and the key of the session. */
const inUse = new Set<string>();

export const postgresql: Protocol = {
  async serve(client, visit) {
    const startup = await readStartup(client);
    if (startup.kind === 'gone') return;
    if (startup.kind === 'cancel') return await cancel(startup.key, visit);
    const { connections, generation } = visit;
    const settings = JSON.stringify([generation, ...startup.settings]);
    const session = ((await connections.take(settings, visit.signal)) ??
      (await open(visit, startup.settings))) as PostgresSession;
    const name = generation + session.key.toString('latin1');
    inUse.add(name);
    let reusable = false;
    try {
      visit.established();
      client.write(
        Buffer.concat([message('R', int32(0)), session.parameters, message('K', session.key), message('Z', text('I'))]),
      );
      const state = new State();
      await relay(client, session.socket, {
        ...visit,
        fromClient: (bytes) => state.fromClient(bytes),
        fromServer: (bytes) => state.fromServer(bytes),
      });
      reusable = state.isClean && (await reset(session.socket, state.inTransaction)) && visit.isCurrent();
    } finally {
      inUse.delete(name);
      if (reusable) connections.keep(session, settings);
      else {
        session.socket.destroy();
        connections.gone();
      }
    }
  },

  refuse(client, error, { code, message: text }) {
    if (error instanceof ServerRefusal) client.write(message('E', error.payload));
    else client.write(errorMessage(code === 'egress_limit' ? '53300' : '08006', text));
  },
};

type Startup =
  | { kind: 'gone' }
  | { kind: 'cancel'; key: Buffer }
  /** What the client asks for beside the user and the database, sorted. */
  | { kind: 'session'; settings: [name: string, value: string][] };

async function readStartup(client: Duplex): Promise<Startup> {
  for (let requests = 0; requests < 4; requests++) {
    const head = await readExactly(client, 8).catch(() => undefined);
    if (!head) return { kind: 'gone' };
    const length = head.readUInt32BE(0);
    const code = head.readUInt32BE(4);
    if (length < 8 || length > MOST_STARTUP_BYTES) break;
    const body = await readExactly(client, length - 8).catch(() => undefined);
    if (!body) return { kind: 'gone' };
    if (code === SSL_REQUEST || code === GSS_REQUEST) client.write('N');
    else if (code === CANCEL) return { kind: 'cancel', key: body };
    else if (code >>> 16 === PROTOCOL_3 >>> 16) return { kind: 'session', settings: settingsOf(body) };
    else break;
  }
  client.write(
    errorMessage('08P01', 'The database is a PostgreSQL server, and the client does not speak its protocol.'),
  );
  return { kind: 'gone' };
}

function settingsOf(body: Buffer): [string, string][] {
  const words = body.toString().split('\0');
  const pairs: [string, string][] = [];
  for (let index = 0; index + 1 < words.length && words[index] !== ''; index += 2)
    pairs.push([words[index] ?? '', words[index + 1] ?? '']);
  return pairs
    .filter(([name]) => name !== 'user' && name !== 'database' && !name.startsWith('_pq_.'))
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Gives the right to a connection back where none comes about. */
async function open(visit: Visit, settings: [string, string][]): Promise<PostgresSession> {
  let socket: Duplex | undefined;
  try {
    const plain = await visit.connect();
    socket = plain;
    if (visit.wantsTls) socket = await startTls(plain, visit);
    return await logIn(socket, visit, settings);
  } catch (error) {
    socket?.destroy();
    visit.connections.gone();
    throw error;
  }
}

async function startTls(socket: Socket, visit: Visit): Promise<Duplex> {
  const { name } = visit.target;
  socket.write(Buffer.concat([int32(8), int32(SSL_REQUEST)]));
  const answer = await within(visit, socket, readExactly(socket, 1));
  if (answer[0] === 0x4e) throw failed(name, 'the database does not offer TLS, which sslmode asks for');
  if (answer[0] !== 0x53) throw failed(name, 'what answers is no PostgreSQL server');
  // Bytes in clear behind the answer could only be somebody else's.
  if (socket.readableLength > 0) throw failed(name, 'the server sent data before TLS was established');
  return visit.secure(socket);
}

async function logIn(socket: Duplex, visit: Visit, settings: [string, string][]): Promise<PostgresSession> {
  const { address, target } = visit;
  const words = [['user', address.user], ['database', address.database], ...settings].flat();
  const body = Buffer.concat([int32(PROTOCOL_3), Buffer.from(`${words.join('\0')}\0\0`)]);
  socket.write(Buffer.concat([int32(body.length + 4), body]));
  const login = new LogIn(address.user, address.password);
  const parameters: Buffer[] = [];
  let key: Buffer = Buffer.alloc(8);
  for (let bytes = 0; ; ) {
    const { type, body } = await readMessage(socket, visit);
    bytes += body.length;
    if (bytes > MOST_LOGIN_BYTES) throw failed(target.name, 'the database says too much before it is ready');
    if (type === 'E') throw new ServerRefusal(body);
    if (type === 'R') {
      const answer = await login.answer(body);
      if (typeof answer === 'string') throw failed(target.name, answer);
      if (answer) socket.write(message('p', answer));
    } else if (type === 'S' && login.done) parameters.push(message('S', body));
    else if (type === 'K' && login.done) key = body;
    else if (type === 'Z' && login.done) return { socket, key, parameters: Buffer.concat(parameters) };
    else if (type !== 'N' && type !== 'v') throw failed(target.name, 'the database answers the log-in out of order');
  }
}

/** Follows messages in both directions, as far as it takes to know whether anything is under way. */
export class State {
  readonly #up = new Messages();
  readonly #down = new Messages();
  /** ReadyForQuery messages that the server owes. */
  #owed = 0;
  /** The client has sent messages of the extended protocol without a Sync behind them. */
  #unsynced = false;
  #status = 'I';

  /** @returns how much of it is for the server: the message that ends a connection is not */
  fromClient(bytes: Buffer): number {
    return this.#up.take(bytes, (type) => {
      if (type === 'X') return false;
      if (type === 'Q' || type === 'F') this.#owed++;
      else if (type === 'S') {
        this.#owed++;
        this.#unsynced = false;
      } else if (!'dcfp'.includes(type)) this.#unsynced = true;
      return true;
    });
  }

  fromServer(bytes: Buffer): void {
    this.#down.take(bytes, (type, body) => {
      if (type !== 'Z') return true;
      this.#owed--;
      this.#status = body;
      return true;
    });
  }

  get isClean(): boolean {
    return this.#owed === 0 && !this.#unsynced && this.#up.isWhole && this.#down.isWhole;
  }

  get inTransaction(): boolean {
    return this.#status !== 'I';
  }
}

/** Finds where messages begin, in whatever pieces they come. */
class Messages {
  readonly #header = Buffer.alloc(6);
  #headerBytes = 0;
  #left = 0;
  #broken = false;

  get isWhole(): boolean {
    return !this.#broken && this.#headerBytes === 0;
  }

  /**
   * @param on called with the type and the first byte behind the length; answers whether to go on
   * @returns how many bytes belong to what was gone on with
   */
  take(bytes: Buffer, on: (type: string, first: string) => boolean): number {
    let at = 0;
    while (at < bytes.length && !this.#broken) {
      if (this.#headerBytes < 5) {
        const copied = bytes.copy(this.#header, this.#headerBytes, at, at + 5 - this.#headerBytes);
        const type = String.fromCharCode(this.#headerBytes === 0 ? (bytes[at] ?? 0) : (this.#header[0] ?? 0));
        // It may be held back at its very beginning only: what has passed cannot be called back.
        if (type === 'X' && this.#headerBytes === 0 && !on(type, '')) return at;
        this.#headerBytes += copied;
        at += copied;
        if (this.#headerBytes < 5) break;
        this.#left = this.#header.readUInt32BE(1) - 4;
        if (this.#left < 0) this.#broken = true;
        if (this.#left <= 0) this.#end('', on);
        continue;
      }
      if (this.#headerBytes === 5) {
        this.#header[5] = bytes[at] ?? 0;
        this.#headerBytes = 6;
      }
      const part = Math.min(this.#left, bytes.length - at);
      at += part;
      this.#left -= part;
      if (this.#left === 0) this.#end(String.fromCharCode(this.#header[5] ?? 0), on);
    }
    return bytes.length;
  }

  #end(first: string, on: (type: string, first: string) => boolean): void {
    this.#headerBytes = 0;
    on(String.fromCharCode(this.#header[0] ?? 0), first);
  }
}

/** @returns whether nothing is left of the last client */
async function reset(socket: Duplex, inTransaction: boolean): Promise<boolean> {
  const late = setTimeout(() => socket.destroy(), RESET_MS);
  try {
    if (inTransaction && !(await run(socket, 'ROLLBACK'))) return false;
    return await run(socket, 'DISCARD ALL');
  } catch {
    return false;
  } finally {
    clearTimeout(late);
  }
}

async function run(socket: Duplex, query: string): Promise<boolean> {
  socket.write(message('Q', text(`${query}\0`)));
  for (let bytes = 0; bytes < MOST_LOGIN_BYTES; ) {
    const head = await readExactly(socket, 5);
    const length = head.readUInt32BE(1) - 4;
    if (length < 0 || length > MOST_MESSAGE_BYTES) return false;
    const body = await readExactly(socket, length);
    bytes += head.length + length;
    if (head[0] === 0x45) return false;
    if (head[0] === 0x5a) return body[0] === 0x49 && socket.readableLength === 0;
  }
  return false;
}

/** For a query of a client that is connected, by a connection of its own; the server answers nothing. */
async function cancel(key: Buffer, visit: Visit): Promise<void> {
  // Keys of other tenants, and of databases that others chose, are none of its business.
  if (!inUse.has(visit.generation + key.toString('latin1'))) return;
  await visit.connections.take(undefined, visit.signal);
  let socket: Duplex | undefined;
  try {
    const plain = await visit.connect();
    socket = plain;
    if (visit.wantsTls) socket = await startTls(plain, visit);
    socket.end(Buffer.concat([int32(key.length + 8), int32(CANCEL), key]));
    // The server closes it once the order has reached the other process.
    await within(visit, socket, readExactly(socket, 1)).catch(() => undefined);
  } finally {
    socket?.destroy();
    visit.connections.gone();
  }
}

async function readMessage(socket: Duplex, visit: Visit): Promise<{ type: string; body: Buffer }> {
  const head = await within(visit, socket, readExactly(socket, 5));
  const length = head.readUInt32BE(1) - 4;
  if (length < 0 || length > MOST_MESSAGE_BYTES)
    throw failed(visit.target.name, 'what answers is no PostgreSQL server');
  const body = await within(visit, socket, readExactly(socket, length));
  return { type: String.fromCharCode(head[0] ?? 0), body };
}

function errorMessage(code: string, words: string): Buffer {
  return message('E', text(`SFATAL\0VFATAL\0C${code}\0M${words.replaceAll('\0', '')}\0\0`));
}

function message(type: string, body: Buffer): Buffer {
  return Buffer.concat([text(type), int32(body.length + 4), body]);
}
