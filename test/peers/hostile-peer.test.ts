/** A node whose key is good and which is not: what it asks of the others, and what it says when they ask. */
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Duplex } from 'node:stream';
import { connect } from 'node:tls';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { NodeLogs } from '../../host/control/node-logs.ts';
import { emptyMinute, History } from '../../host/observability/history.ts';
import { NodeHistory } from '../../host/observability/node-history.ts';
import { Answers } from '../../host/payments/settlement/answers.ts';
import { type CertifiedKey, certifyNode, createAuthority } from '../../host/peers/authority.ts';
import { PeerLinks } from '../../host/peers/links.ts';
import { Questions } from '../../host/peers/questions.ts';
import { LogStore } from '../../host/runtime/logs/log-store.ts';

const [GOOD, HOSTILE, OTHER] = [1, 2, 3];
const TENANT = 't00';
const WHOLE = '\0';
const MEGABYTE = 1_048_576;
const NOW = Date.parse('2026-11-20T10:00:00Z');

let folder: string;
let authority: CertifiedKey;
let keys: Map<number, CertifiedKey>;
let links: PeerLinks;
let hostile: PeerLinks;
let port: number;
let logs: LogStore;
let told: NodeLogs;
let history: History;
let charts: NodeHistory;
let answers: Answers;
/** Reads of the log that are under way, and the most that ever were. */
let reading = { now: 0, most: 0 };
/** How the hostile node answers. */
let say: (stream: Duplex) => void;

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'hostile-peer-'));
  authority = await createAuthority();
  keys = new Map(
    await Promise.all([GOOD, HOSTILE, OTHER].map(async (node) => [node, await certifyNode(authority, node)] as const)),
  );
  let hostilePort = 0;
  const linksOf = (node: number, onConnection: ConstructorParameters<typeof PeerLinks>[0]['onConnection']) =>
    new PeerLinks({
      authority: authority.certificate,
      own: keys.get(node) as CertifiedKey,
      admits: () => true,
      addressOf: () => ({ host: '127.0.0.1', port: hostilePort }),
      onConnection,
    });
  hostile = linksOf(HOSTILE, (_purpose, stream) => say(stream.on('error', () => undefined)));
  hostilePort = await hostile.listen('127.0.0.1', 0);
  const others = new Questions({
    own: 'good',
    peers: () => [{ name: 'hostile', number: HOSTILE }],
    dial: (node, purpose) => links.dial(node, purpose),
  });
  links = linksOf(GOOD, (purpose, stream, from) => void others.receive(JSON.parse(purpose), stream, from));
  port = await links.listen('127.0.0.1', 0);
  logs = new LogStore({ folder: path.join(folder, 'tenants'), clock: { now: () => NOW } as never, maxBytes: MEGABYTE });
  await logs.append(TENANT, { kind: 'console', level: 'log', text: 'own' });
  const watched: Pick<LogStore, 'read' | 'tail'> = {
    tail: logs.tail.bind(logs) as LogStore['tail'],
    async read(...asked) {
      reading.most = Math.max(reading.most, ++reading.now);
      return await logs.read(...asked).finally(() => reading.now--);
    },
  };
  const liveRequests = { watch: () => ({ told: Promise.resolve(), end: () => undefined }) };
  told = new NodeLogs({ logs: watched, liveRequests, others, now: () => NOW });
  history = await History.open(path.join(folder, 'history'));
  await history.add(NOW, { ...emptyMinute(), requests: 7 });
  charts = new NodeHistory({ history, sampler: { refresh: async () => undefined }, others });
  const budget = { tenantBytes: MEGABYTE, totalBytes: MEGABYTE, reserveBytes: 0 };
  answers = new Answers(path.join(folder, 'answers'), budget, pino({ level: 'silent' }), others);
});
afterAll(async () => {
  await Promise.all([links.close(), hostile.close(), history.close(), logs.close()]);
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  reading = { now: 0, most: 0 };
});

const line = (change: object) =>
  JSON.stringify({ id: 1, time: NOW, kind: 'console', level: 'log', text: 'theirs', ...change });
const step = (change: object) =>
  JSON.stringify({
    steps: [{ at: NOW, known: 1, sum: emptyMinute(), memory: emptyMinute().memory, ...change }],
    busiest: [],
  });

describe('what it says', () => {
  it.each<[string, string]>([
    ['nothing', ''],
    ['no JSON', '<script>'],
    ['no list', '{"newest":1,"entries":null}'],
    ['an id that is another field of an event', `1\n${line({ id: '1\nevent: gone' })}`],
    ['a time without a date', `1\n${line({ time: 1e300 })}`],
    ['a kind that there is not', `1\n${line({ kind: '__proto__' })}`],
    ['a text that is none', `1\n${line({ text: { toString: 1 } })}`],
    ['an event that is not a word', `1\n${line({ kind: 'platform', event: '\u001b[2J' })}`],
    ['more lines than were asked for', `1\n${`${line({})}\n`.repeat(200)}`],
    ['JSON that takes much more memory than it is long', `1\n${'['.repeat(8 * MEGABYTE)}`],
    ['JSON of many small parts', `1\n[${'{},'.repeat(4 * MEGABYTE)}{}]`],
  ])('as a log, %s: it is missing, and the own lines are there', async (_, text) => {
    say = (stream) => stream.end(text + WHOLE);
    const { lines, missing } = await told.read({ tenant: TENANT, limit: 100, after: undefined, since: 0 });
    expect(lines).toMatchObject([{ text: 'own', node: 'good' }]);
    expect(missing).toEqual(['hostile']);
  });

  it('as a log, members that no line has: they are left out', async () => {
    say = (stream) =>
      stream.end(`9\n${line({}).replace('{', '{"__proto__":{"html":"<b>"},"node":"good","x":1,')}${WHOLE}`);
    const { lines } = await told.read({ tenant: TENANT, limit: 100, after: undefined, since: 0 });
    expect(lines.map((one) => JSON.stringify(one))).toEqual([
      expect.stringContaining('"text":"own"'),
      `{"id":"${NOW};good=1;hostile=1","time":${NOW},"kind":"console","level":"log","text":"theirs","node":"hostile"}`,
    ]);
  });

  it('as a log that comes, a line without an end: little of it is taken', async () => {
    let sent = 0;
    const closed = Promise.withResolvers<void>();
    say = (stream) => {
      const piece = Buffer.alloc(65_536, 'x');
      const more = () => {
        while (!stream.destroyed && stream.write(piece)) sent += piece.length;
      };
      stream.on('drain', more).once('close', closed.resolve).resume();
      more();
    };
    const ended = new AbortController();
    const seen: string[] = [];
    const following = (async () => {
      const query = { tenant: TENANT, limit: 0, after: `${NOW};good=1`, since: 0 };
      for await (const one of told.follow(query, undefined, ended.signal))
        seen.push('text' in one ? one.text : one.kind);
    })();
    // The first is the question for the lines that are there.
    await closed.promise;
    await expect.poll(() => seen).toEqual(['The node hostile does not answer. What it logs is told once it does.']);
    expect(sent).toBeLessThan(32 * MEGABYTE);
    ended.abort();
    await following;
  });

  it.each<[string, string]>([
    ['nothing', ''],
    ['null', 'null'],
    ['figures that are none', step({ known: '1' })],
    ['figures without a bound', step({ sum: { ...emptyMinute(), requests: 1e308 } })],
    ['a negative one', step({ sum: { ...emptyMinute(), earned: -1 } })],
    ['a tenant that is HTML', JSON.stringify({ steps: [], busiest: [{ tenant: '<b>', requests: 1, errors: 0 }] })],
    ['too many steps', JSON.stringify({ steps: Array(400).fill(JSON.parse(step({})).steps[0]), busiest: [] })],
    ['more than most steps take', `{"steps":[${'[],'.repeat(MEGABYTE)}[]],"busiest":[]}`],
  ])('as a history, %s: it is missing, and the own figures are there', async (_, text) => {
    say = (stream) => stream.end(text + WHOLE);
    const { points, missing } = await charts.host('hour', NOW);
    expect(points.reduce((sum, { requests }) => sum + requests, 0)).toBe(7);
    expect(missing).toEqual(['hostile']);
    expect((await charts.tenant(TENANT, 'hour', NOW)).missing).toEqual(['hostile']);
  });

  it.each<[string, object | string]>([
    ['no head', 'x\n'],
    ['fields that are no list', { headers: { length: 1 } }],
    ['a field that ends its line', { headers: [['a', 'b\r\nset-cookie: c']] }],
    ['a status that is none', { status: 99_999 }],
  ])('as a paid answer, %s: there is none', async (_, said) => {
    const sha256 = '47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=';
    const text =
      typeof said === 'string' ? said : `${JSON.stringify({ status: 200, headers: [], size: 0, sha256, ...said })}\n`;
    say = (stream) => stream.end(text + WHOLE);
    expect(await answers.find({ id: 'p1', attempts: 0, tenant: TENANT })).toBeUndefined();
  });
});

describe('what it asks', () => {
  /** A connection of a node with a question, of which nothing is read yet. */
  async function ask(node: number, question: string, asked: object): Promise<Duplex> {
    const { certificate, key } = keys.get(node) as CertifiedKey;
    const socket = connect({
      host: '127.0.0.1',
      port,
      ca: authority.certificate,
      cert: certificate,
      key,
      checkServerIdentity: () => undefined,
    });
    socket.on('error', () => undefined);
    await once(socket, 'secureConnect');
    socket.write(`${JSON.stringify({ question, asked })}\n`);
    return socket;
  }
  async function answerTo(socket: Duplex): Promise<string> {
    let text = '';
    for await (const piece of socket) text += piece;
    return text;
  }
  const log = { tenant: TENANT, limit: 100, after: 0, since: 0 };

  it('many times at once is answered a few at a time, and another node beside it', async () => {
    const flood = await Promise.all(Array.from({ length: 60 }, () => ask(HOSTILE, 'log', log)));
    const other = await answerTo(await ask(OTHER, 'log', log));
    expect(other).toContain('"text":"own"');
    for (const text of await Promise.all(flood.map(answerTo))) expect([other, '']).toContain(text);
    expect(reading.most).toBeLessThanOrEqual(4 + 1);
  });

  it.each<[string, object]>([
    ['log', { ...log, limit: 1e9 }],
    ['log', { ...log, tenant: '../t00' }],
    ['log', { ...log, __proto__: null, more: 1 }],
    ['history', { range: 'hour', now: 1e22 }],
    ['history', { range: 'constructor', now: NOW }],
    ['paid answer', { id: '../../secrets.key', attempts: 0, tenant: TENANT }],
    ['constructor', {}],
  ])('%s, in a way that nobody asks, is not answered', async (question, asked) => {
    expect(await answerTo(await ask(HOSTILE, question, asked))).toBe('');
  });

  it('of tenants that there are not leaves nothing behind', async () => {
    expect(await answerTo(await ask(HOSTILE, 'log', { ...log, tenant: 'nobody' }))).toBe(`0${WHOLE}`);
    expect(readdirSync(path.join(folder, 'tenants'))).toEqual([TENANT]);
  });
});
