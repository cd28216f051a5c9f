/**
 * MySQL and MariaDB (https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html). A client gets the greeting of
 * the server with another challenge, and without what would hide the bytes that follow; the log-in is this process's. Each
 * client has a connection of the server for itself. When it takes its leave, the connection is logged in anew and kept
 * for the next client that chooses the same.
 */
import { constants, createHash, publicEncrypt, randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Session } from './connections.ts';
import type { Protocol, Visit } from './protocol.ts';
import { relay } from './relay.ts';
import { failed, readExactly, ServerRefusal, within } from './wire.ts';

/** Of one packet until the client is logged in, bytes. */
const MOST_PACKET_BYTES = 65_536;
/** Packets of a server before it accepts or refuses. */
const MOST_STEPS = 8;

const LONG_PASSWORD = 1;
const CONNECT_WITH_DB = 1 << 3;
const IGNORE_SPACE = 1 << 8;
const PROTOCOL_41 = 1 << 9;
const SSL = 1 << 11;
const SECURE_CONNECTION = 1 << 15;
const PLUGIN_AUTH = 1 << 19;
/**
 * What client and server may agree on, as it passes through: all but TLS, compression, attributes of connections, other
 * forms of the log-in, and MariaDB's extensions.
 */
const PASSED = 0x0b8ff7df;

/** Commands; the last two have no answer: data of a prepared statement, and its end. */
const QUIT = 0x01;
const QUERY = 0x03;
const CHANGE_USER = 0x11;
const UNANSWERED = [0x18, 0x19];
const RESET_MS = 5_000;

const OK = 0x00;
const MORE = 0x01;
const SWITCH = 0xfe;
/** The end of rows; the same byte as SWITCH, which comes at the log-in only. */
const END = 0xfe;
const ERROR = 0xff;
const FAST_ACCEPTED = 3;
const FULL_LOG_IN = 4;
const ASK_KEY = 2;

interface Packet {
  sequence: number;
  payload: Buffer;
}

/** A connection that a client has, or had. */
interface MysqlSession extends Session {
  greeting: Greeting;
  /** What its client chose: flags, the largest packet, the character set. */
  head: Buffer;
  /** The OK of its last log-in, which its next client gets. */
  accepted: Buffer;
}

export const mysql: Protocol = {
  async serve(client, visit) {
    const { connections, signal, generation } = visit;
    const kept = (await connections.take(generation, signal)) as MysqlSession | undefined;
    let begun: Begun | undefined;
    let session = kept;
    let reusable = false;
    try {
      if (!kept) begun = await begin(visit);
      const greeting = kept?.greeting ?? (begun as Begun).greeting;
      const flags = greeting.flags & PASSED;
      client.write(packet(0, clientGreeting(greeting, flags)));
      greeted.add(client);
      const asked = await readPacket(client, visit).catch(() => undefined);
      if (!asked) return;
      const answer = readAnswer(asked.payload, flags);
      if (!answer) throw failed(visit.target.name, 'the client does not speak the protocol of MySQL, or asks for TLS');
      const chosen = answer.flags | LONG_PASSWORD | CONNECT_WITH_DB | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
      const head = Buffer.alloc(32);
      head.writeUInt32LE(chosen >>> 0, 0);
      asked.payload.copy(head, 4, 4, 9);
      if (kept && !kept.head.equals(head)) {
        kept.socket.destroy();
        begun = await begin(visit);
      }
      if (begun) session = await open(begun, visit, head);
      if (!session) return;
      visit.established();
      client.write(packet(asked.sequence + 1, session.accepted));
      const commands = new Commands();
      await relay(client, session.socket, {
        ...visit,
        fromClient: (bytes) => commands.fromClient(bytes),
        fromServer: () => commands.fromServer(),
      });
      reusable = commands.ended && (await reset(session, visit)) && visit.isCurrent();
    } finally {
      if (reusable && session) connections.keep(session, generation);
      else {
        begun?.plain.destroy();
        session?.socket.destroy();
        connections.gone();
      }
    }
  },

  refuse(client, error, { code, message }) {
    const sequence = greeted.has(client) ? 2 : 0;
    if (error instanceof ServerRefusal) client.write(packet(sequence, error.payload));
    else client.write(packet(sequence, errorPayload(code === 'egress_limit' ? 1040 : 2013, message, sequence > 0)));
  },
};

/** Clients that have begun to log in. */
const greeted = new WeakSet<Duplex>();

interface Begun {
  plain: Socket;
  greeting: Greeting;
}

async function begin(visit: Visit): Promise<Begun> {
  const plain = await visit.connect();
  try {
    return { plain, greeting: parseGreeting((await readPacket(plain, visit)).payload, visit) };
  } catch (error) {
    plain.destroy();
    throw error;
  }
}

async function open({ plain, greeting }: Begun, visit: Visit, head: Buffer): Promise<MysqlSession> {
  let sequence = 1;
  let socket: Duplex = plain;
  const sent = Buffer.from(head);
  if (visit.wantsTls) {
    if ((greeting.flags & SSL) === 0)
      throw failed(visit.target.name, 'the database does not offer TLS, which sslmode asks for');
    sent.writeUInt32LE((head.readUInt32LE(0) | SSL) >>> 0, 0);
    plain.write(packet(sequence++, sent));
    if (plain.readableLength > 0) throw failed(visit.target.name, 'the server sent data before TLS was established');
    socket = await visit.secure(plain);
  }
  const { address } = visit;
  const accepted = await logIn(socket, visit, greeting, sequence, (proof, plugin) => [
    ...[sent, Buffer.from(`${address.user}\0`), Buffer.from([proof.length]), proof],
    Buffer.from(`${address.database}\0${plugin}\0`),
  ]);
  return { socket, greeting, head, accepted };
}

/**
 * Logs in anew (COM_CHANGE_USER): that ends transactions and locks, and forgets temporary tables, variables and prepared
 * statements. Then the server shows that it has answered everything.
 * @returns whether the next client can have the connection
 */
async function reset(session: MysqlSession, visit: Visit): Promise<boolean> {
  const { socket, greeting, head } = session;
  const bounds = { ...visit, signal: AbortSignal.timeout(RESET_MS) };
  const { address } = visit;
  try {
    session.accepted = await logIn(socket, bounds, greeting, 0, (proof, plugin) => [
      ...[Buffer.from([CHANGE_USER]), Buffer.from(`${address.user}\0`), Buffer.from([proof.length]), proof],
      ...[Buffer.from(`${address.database}\0`), Buffer.from([head[8] ?? 0, 0]), Buffer.from(`${plugin}\0`)],
    ]);
    const query = (words: string) => socket.write(packet(0, Buffer.from(`${String.fromCharCode(QUERY)}${words}`)));
    // At the first log-in the flag does this.
    if (head.readUInt32LE(0) & IGNORE_SPACE) {
      query("SET SESSION sql_mode = CONCAT('IGNORE_SPACE,', @@sql_mode)");
      if ((await readPacket(socket, bounds)).payload[0] !== OK) return false;
    }
    const word = randomBytes(8).toString('hex');
    const mirrored = [...word].reverse().join('');
    query(`SELECT REVERSE('${word}') AS a`);
    // A number of columns, the column, the end of columns, the row, the end.
    for (let step = 0; step < 4; step++) {
      if (!(await readPacket(socket, bounds)).payload.includes(mirrored)) continue;
      const [end] = (await readPacket(socket, bounds)).payload;
      return end === END && socket.readableLength === 0;
    }
    return false;
  } catch {
    return false;
  }
}

/** Follows what a client sends, as far as it takes to know that it is done and has had all answers. */
export class Commands {
  readonly #header = Buffer.alloc(4);
  #headerBytes = 0;
  #left = 0;
  #answered = true;
  /** The client took its leave, after the answer to its last command. */
  ended = false;

  /** @returns how much of it is for the server: the packet that ends a connection is not */
  fromClient(bytes: Buffer): number {
    for (let at = 0; at < bytes.length; ) {
      if (this.#left > 0) {
        const part = Math.min(this.#left, bytes.length - at);
        this.#left -= part;
        at += part;
        continue;
      }
      const copied = bytes.copy(this.#header, this.#headerBytes, at, at + 4 - this.#headerBytes);
      this.#headerBytes += copied;
      at += copied;
      if (this.#headerBytes < 4) break;
      this.#headerBytes = 0;
      this.#left = this.#header.readUIntLE(0, 3);
      const command = this.#header[3] === 0 ? bytes[at] : undefined;
      if (command === QUIT && this.#left === 1 && copied === 4 && this.#answered) {
        this.ended = true;
        return at - 4;
      }
      if (command === undefined || !UNANSWERED.includes(command)) this.#answered = false;
    }
    return bytes.length;
  }

  fromServer(): void {
    this.#answered = true;
  }
}

interface Greeting {
  version: string;
  thread: Buffer;
  salt: Buffer;
  flags: number;
  charset: number;
  status: Buffer;
  plugin: string;
}

function parseGreeting(payload: Buffer, { target }: Visit): Greeting {
  if (payload[0] === ERROR) throw new ServerRefusal(payload);
  const end = payload.indexOf(0, 1);
  const at = end + 1;
  if (payload[0] !== 10 || end < 0 || payload.length < at + 44) {
    throw failed(target.name, 'what answers is no MySQL server');
  }
  const rest = payload.subarray(at + 31);
  const salt = rest.subarray(0, 12);
  const plugin = rest.subarray(13).toString('latin1').split('\0', 1)[0] ?? '';
  return {
    version: payload.toString('latin1', 1, end),
    thread: payload.subarray(at, at + 4),
    salt: Buffer.concat([payload.subarray(at + 4, at + 12), salt]),
    flags: (payload.readUInt16LE(at + 13) | (payload.readUInt16LE(at + 18) << 16)) >>> 0,
    charset: payload[at + 15] ?? 0,
    status: payload.subarray(at + 16, at + 18),
    plugin,
  };
}

/** The greeting for a client: whatever it proves by the challenge is accepted. */
function clientGreeting({ version, thread, charset, status }: Greeting, flags: number): Buffer {
  const salt = randomBytes(20).map((byte) => byte & 0x7f || 1);
  const offered = flags | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
  const low = Buffer.alloc(2);
  const high = Buffer.alloc(2);
  low.writeUInt16LE(offered & 0xffff);
  high.writeUInt16LE(offered >>> 16);
  return Buffer.concat([
    Buffer.from([10]),
    Buffer.from(`${version}\0`, 'latin1'),
    thread,
    salt.subarray(0, 8),
    Buffer.from([0]),
    low,
    Buffer.from([charset]),
    status,
    high,
    Buffer.from([salt.length + 1]),
    Buffer.alloc(10),
    salt.subarray(8),
    Buffer.from('\0mysql_native_password\0'),
  ]);
}

/** @returns what the client chose of what it was offered */
function readAnswer(payload: Buffer, offered: number): { flags: number } | undefined {
  if (payload.length < 32) return undefined;
  const flags = payload.readUInt32LE(0);
  if ((flags & PROTOCOL_41) === 0 || (flags & SSL) !== 0) return undefined;
  return { flags: flags & offered };
}

/**
 * @param sequence of the next packet
 * @param request the packet that logs in
 * @returns the server's OK
 */
async function logIn(
  server: Duplex,
  visit: Visit,
  greeting: Greeting,
  sequence: number,
  request: (proof: Buffer, plugin: string) => Buffer[],
): Promise<Buffer> {
  const { address, target, wantsTls } = visit;
  let plugin = proofOf(greeting.plugin) ? greeting.plugin : 'mysql_native_password';
  let { salt } = greeting;
  const proof = () => proofOf(plugin)?.(address.password, salt) ?? Buffer.alloc(0);
  server.write(packet(sequence, Buffer.concat(request(proof(), plugin))));
  for (let step = 0; step < MOST_STEPS; step++) {
    const { sequence: theirs, payload } = await readPacket(server, visit);
    const say = (bytes: Buffer) => server.write(packet(theirs + 1, bytes));
    const [kind] = payload;
    if (kind === OK) return payload;
    if (kind === ERROR) throw new ServerRefusal(payload);
    if (kind === SWITCH && payload.length > 1) {
      const end = payload.indexOf(0, 1);
      plugin = payload.toString('latin1', 1, end < 0 ? payload.length : end);
      salt = Buffer.from(payload.subarray(end + 1, end + 21));
      if (!proofOf(plugin) || end < 0) throw failed(target.name, UNKNOWN);
      say(proof());
    } else if (kind === MORE && plugin === 'caching_sha2_password') {
      if (payload[1] === FAST_ACCEPTED) continue;
      const password = Buffer.from(`${address.password}\0`);
      if (payload.length === 2 && payload[1] === FULL_LOG_IN) say(wantsTls ? password : Buffer.from([ASK_KEY]));
      else if (!wantsTls) say(sealed(password, salt, payload.subarray(1), target.name));
      else throw failed(target.name, 'the database answers the log-in out of order');
    } else throw failed(target.name, UNKNOWN);
  }
  throw failed(target.name, 'the database answers the log-in out of order');
}

const UNKNOWN =
  'the database asks for a way to log in that this host does not have; use caching_sha2_password or mysql_native_password';

/** What proves that one knows the password, by the names of plugins. */
const proofs: Partial<Record<string, (password: string, salt: Buffer) => Buffer>> = {
  mysql_native_password(password, salt) {
    if (password === '') return Buffer.alloc(0);
    const once = hash('sha1', password);
    return xor(once, hash('sha1', salt, hash('sha1', once)));
  },
  caching_sha2_password(password, salt) {
    if (password === '') return Buffer.alloc(0);
    const once = hash('sha256', password);
    return xor(once, hash('sha256', hash('sha256', once), salt));
  },
};

function proofOf(plugin: string): ((password: string, salt: Buffer) => Buffer) | undefined {
  return Object.hasOwn(proofs, plugin) ? proofs[plugin] : undefined;
}

/** The password for a server that is reached in clear, where the operator opened that. */
function sealed(password: Buffer, salt: Buffer, key: Buffer, name: string): Buffer {
  const masked = Buffer.from(password.map((byte, index) => byte ^ (salt[index % salt.length] ?? 0)));
  try {
    return publicEncrypt({ key: key.toString('latin1'), padding: constants.RSA_PKCS1_OAEP_PADDING }, masked);
  } catch {
    throw failed(name, 'the database answers the log-in out of order');
  }
}

async function readPacket(stream: Duplex, visit: Visit): Promise<Packet> {
  const head = await within(visit, stream, readExactly(stream, 4));
  const length = head.readUIntLE(0, 3);
  if (length === 0 || length > MOST_PACKET_BYTES) throw failed(visit.target.name, 'what answers is no MySQL server');
  return { sequence: head[3] ?? 0, payload: await within(visit, stream, readExactly(stream, length)) };
}

function packet(sequence: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(4);
  head.writeUIntLE(payload.length, 0, 3);
  head[3] = sequence;
  return Buffer.concat([head, payload]);
}

/** @param withState clients know the state of an error once they have said so */
function errorPayload(number: number, words: string, withState: boolean): Buffer {
  const head = Buffer.from([ERROR, number & 0xff, number >> 8]);
  return Buffer.concat([head, Buffer.from(`${withState ? '#08S01' : ''}${words}`)]);
}

function hash(kind: 'sha1' | 'sha256', ...parts: (string | Buffer)[]): Buffer {
  const digest = createHash(kind);
  for (const part of parts) digest.update(part);
  return digest.digest();
}

function xor(a: Buffer, b: Buffer): Buffer {
  return Buffer.from(a.map((byte, index) => byte ^ (b[index] ?? 0)));
}
