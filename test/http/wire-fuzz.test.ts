/**
 * Mutated requests, read by our parser and by Node's (llhttp): whatever ours accepts, the other must read as the
 * same sequence of requests. Two parsers that disagree are what request smuggling is made of.
 */
import { createServer, type Server } from 'node:http';
import { Duplex } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BodyDecoder } from '../../host/http/message/body.ts';
import { requestField } from '../../host/http/message/fields.ts';
import { parseRequestHead } from '../../host/http/message/head.ts';
import { incoming } from '../../host/http/message/incoming.ts';
import { WireError } from '../../host/http/message/wire-error.ts';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']);

interface Read {
  method: string;
  target: string;
  host: string;
  body: string;
}

/** Deterministic, so that a failure can be repeated. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Our reading; `pieces` is how the bytes arrive. */
function ours(pieces: Buffer[]): { requests: Read[]; refused: boolean; used: number } {
  const requests: Read[] = [];
  /** Bytes of whole requests. */
  let used = 0;
  let before = 0;
  const heads = incoming(65_536);
  let current: { read: Read; decoder: BodyDecoder } | undefined;
  try {
    for (const given of pieces) {
      // What is read is also written to.
      const piece = Buffer.from(given);
      let at = 0;
      while (at < piece.length) {
        if (current) {
          const { read, decoder } = current;
          at = decoder.feed(piece, at, {
            data: (chunk) => {
              read.body += chunk.toString('latin1');
            },
            end: () => {},
          });
          if (decoder.done) {
            requests.push(read);
            used = before + at;
            current = undefined;
          }
          continue;
        }
        const taken = heads.take(piece, at);
        if (!taken) break;
        at = taken.next;
        const head = parseRequestHead(taken.text, requestField);
        // The front door refuses it.
        if (!METHODS.has(head.method)) return { requests, refused: true, used };
        // Escaped by us, refused by Node.
        if (/%[89A-F]/.test(head.target)) return { requests, refused: true, used };
        const read = { method: head.method, target: head.target, host: head.host, body: '' };
        const decoder = new BodyDecoder(head.framing);
        if (decoder.done) {
          requests.push(read);
          used = before + at;
        } else current = { read, decoder };
        // Nothing after such a request belongs to this conversation.
        if (!head.keepAlive || head.upgrade) return { requests, refused: true, used };
      }
      before += piece.length;
    }
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    return { requests, refused: true, used };
  }
  return { requests, refused: false, used };
}

let server: Server;
let seen: Read[] = [];

beforeAll(() => {
  server = createServer({ requireHostHeader: false, insecureHTTPParser: false }, (request, response) => {
    const read: Read = {
      method: request.method ?? '',
      target: request.url ?? '',
      host: request.headers.host ?? '',
      body: '',
    };
    request.on('data', (chunk) => {
      read.body += chunk.toString('latin1');
    });
    request.on('end', () => {
      seen.push(read);
      response.end();
    });
  });
  server.on('clientError', (_error, socket) => socket.destroy());
});

afterAll(() => {
  server.closeAllConnections();
});

class Wire extends Duplex {
  override _read(): void {}
  override _write(_chunk: Buffer, _encoding: string, done: () => void): void {
    done();
  }
}

/** Node's reading of the same bytes. */
async function theirs(bytes: Buffer): Promise<Read[]> {
  seen = [];
  const wire = new Wire();
  wire.on('error', () => {});
  const closed = new Promise((resolve) => wire.on('close', resolve));
  server.emit('connection', wire);
  wire.push(bytes);
  wire.push(null);
  await Promise.race([closed, new Promise((resolve) => setImmediate(() => setImmediate(() => setImmediate(resolve))))]);
  wire.destroy();
  return seen;
}

const SEEDS = [
  'GET /a?b=c HTTP/1.1\r\nHost: x.test\r\nAccept: */*\r\n\r\n',
  'POST /p HTTP/1.1\r\nHost: x.test\r\nContent-Length: 11\r\n\r\nhello world',
  'POST /c HTTP/1.1\r\nHost: x.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nA: b\r\n\r\n',
  'PUT /d HTTP/1.1\r\nHost: x.test\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n',
];
// No chunk extensions: Node checks their grammar, ours throws them away unread.
const FRAGMENTS = [
  '\r',
  '\n',
  '\r\n',
  '\r\n\r\n',
  '\n\n',
  ' ',
  '\t',
  '\0',
  ':',
  ',',
  '0',
  '1',
  'a',
  '\x0b',
  '\x7f',
  '\x80',
  '\xff',
  'Content-Length: 3\r\n',
  'Content-Length: 0\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Transfer-Encoding:chunked\r\n',
  'Transfer-Encoding : chunked\r\n',
  ' chunked',
  'Host: y\r\n',
  '0\r\n\r\n',
  '5\r\n',
  'GET / HTTP/1.1\r\nHost: z\r\n\r\n',
  'HTTP/1.0',
  'Connection: close\r\n',
  '0x',
  '+',
  '-',
  '\\',
  '/../',
  '//',
  '%2e',
  '#',
  'A: b\r\n c\r\n',
];

test('whatever is accepted, Node reads in the same way', async () => {
  const next = random(20_261_121);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)] as T;
  let accepted = 0;
  for (let round = 0; round < 6_000; round += 1) {
    let text = pick(SEEDS) + pick(SEEDS);
    for (let changes = Math.floor(next() * 4); changes > 0; changes -= 1) {
      const at = Math.floor(next() * text.length);
      const cut = next() < 0.5 ? 0 : Math.floor(next() * 3);
      text = text.slice(0, at) + (next() < 0.8 ? pick(FRAGMENTS) : '') + text.slice(at + cut);
    }
    const bytes = Buffer.from(text, 'latin1');
    const mine = ours([bytes]);
    const other = await theirs(bytes.subarray(0, mine.used));
    accepted += mine.requests.length;
    // Absolute form is the one thing that is rewritten; no mutation makes it.
    expect(other, JSON.stringify(text)).toEqual(mine.requests);
  }
  expect(accepted).toBeGreaterThan(2_000);
});

test('how the bytes are cut makes no difference', () => {
  const next = random(7);
  const bytes = Buffer.from(SEEDS.join(''), 'latin1');
  const whole = ours([bytes]);
  expect(whole.requests).toHaveLength(4);
  for (let round = 0; round < 300; round += 1) {
    const pieces: Buffer[] = [];
    for (let at = 0; at < bytes.length; ) {
      const length = round === 0 ? 1 : 1 + Math.floor(next() * 40);
      pieces.push(bytes.subarray(at, at + length));
      at += length;
    }
    expect(ours(pieces)).toEqual(whole);
  }
});

test('noise never throws anything but a refusal', () => {
  const next = random(99);
  for (let round = 0; round < 3_000; round += 1) {
    const noise = Buffer.from(Array.from({ length: Math.floor(next() * 200) }, () => Math.floor(next() * 256)));
    const start = Buffer.from((SEEDS[round % SEEDS.length] as string).slice(0, Math.floor(next() * 80)), 'latin1');
    ours([start, noise]);
  }
});
