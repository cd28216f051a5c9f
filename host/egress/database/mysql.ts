/**
 * MySQL and MariaDB (https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html). A client gets the greeting of
 * the server with another challenge, and without what would hide the bytes that follow; the log-in is this process's. Each
 * client has a connection of the server for itself, which ends with it.
 */
import { constants, createHash, publicEncrypt, randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import type { Protocol, Visit } from './protocol.ts';
import { relay } from './relay.ts';
import { failed, readExactly, ServerRefusal, within } from './wire.ts';

/** Of one packet until the client is logged in, bytes. */
const MOST_PACKET_BYTES = 65_536;
/** Packets of a server before it accepts or refuses. */
const MOST_STEPS = 8;

const LONG_PASSWORD = 1;
const CONNECT_WITH_DB = 1 << 3;
const PROTOCOL_41 = 1 << 9;
const SSL = 1 << 11;
const SECURE_CONNECTION = 1 << 15;
const PLUGIN_AUTH = 1 << 19;
/**
 * What client and server may agree on, as it passes through: all but TLS, compression, attributes of connections, other
 * forms of the log-in, and MariaDB's extensions.
 */
const PASSED = 0x0b8ff7df;

const OK = 0x00;
const MORE = 0x01;
const SWITCH = 0xfe;
const ERROR = 0xff;
const FAST_ACCEPTED = 3;
const FULL_LOG_IN = 4;
const ASK_KEY = 2;

interface Packet {
  sequence: number;
  payload: Buffer;
}

export const mysql: Protocol = {
  async serve(client, visit) {
    const { connections, signal } = visit;
    await connections.take(undefined, signal);
    let server: Duplex | undefined;
    try {
      const plain = await visit.connect();
      server = plain;
      const greeting = parseGreeting((await readPacket(plain, visit)).payload, visit);
      const flags = greeting.flags & PASSED;
      client.write(packet(0, clientGreeting(greeting, flags)));
      greeted.add(client);
      const asked = await readPacket(client, visit).catch(() => undefined);
      if (!asked) return;
      const answer = readAnswer(asked.payload, flags);
      if (!answer) throw failed(visit.target.name, 'the client does not speak the protocol of MySQL, or asks for TLS');
      const chosen = answer.flags | LONG_PASSWORD | CONNECT_WITH_DB | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
      const head = Buffer.alloc(32);
      head.writeUInt32LE((visit.wantsTls ? chosen | SSL : chosen) >>> 0, 0);
      asked.payload.copy(head, 4, 4, 9);
      let sequence = 1;
      if (visit.wantsTls) {
        if ((greeting.flags & SSL) === 0)
          throw failed(visit.target.name, 'the database does not offer TLS, which sslmode asks for');
        plain.write(packet(sequence++, head));
        if (plain.readableLength > 0)
          throw failed(visit.target.name, 'the server sent data before TLS was established');
        server = await visit.secure(plain);
      }
      const accepted = await logIn(server, visit, greeting, head, sequence);
      visit.established();
      client.write(packet(asked.sequence + 1, accepted));
      await relay(client, server, visit);
    } finally {
      server?.destroy();
      connections.gone();
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
 * @param head what the answer to the greeting begins with
 * @param sequence of the next packet
 * @returns the server's OK
 */
async function logIn(
  server: Duplex,
  visit: Visit,
  greeting: Greeting,
  head: Buffer,
  sequence: number,
): Promise<Buffer> {
  const { address, target, wantsTls } = visit;
  let plugin = proofOf(greeting.plugin) ? greeting.plugin : 'mysql_native_password';
  let { salt } = greeting;
  const proof = () => proofOf(plugin)?.(address.password, salt) ?? Buffer.alloc(0);
  const first = proof();
  const body = [
    head,
    Buffer.from(`${address.user}\0`),
    Buffer.from([first.length]),
    first,
    Buffer.from(`${address.database}\0${plugin}\0`),
  ];
  server.write(packet(sequence, Buffer.concat(body)));
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
