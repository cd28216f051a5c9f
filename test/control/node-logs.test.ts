/** A log that three nodes keep, over real links between them: as one, in order, by any node, with what a node kept back. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Duplex } from 'node:stream';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type LogLine, NodeLogs } from '../../host/control/node-logs.ts';
import { type CertifiedKey, certifyNode, createAuthority } from '../../host/peers/authority.ts';
import { PeerLinks } from '../../host/peers/links.ts';
import { Questions } from '../../host/peers/questions.ts';
import { LogStore } from '../../host/runtime/logs/log-store.ts';
import { expectTime } from '../times.ts';

const NAMES = ['a', 'b', 'c'];
const TENANT = 't1';

interface Node {
  logs: LogStore;
  told: NodeLogs;
  /** Whether it takes what others ask and says nothing. */
  hangs: boolean;
  watched: string[];
  begin(): Promise<void>;
  end(): Promise<void>;
}

let folder: string;
let authority: CertifiedKey;
let nodes: Node[];
let time = 1_000;
const ports = new Map<number, number>();

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'node-logs-'));
  authority = await createAuthority();
  nodes = await Promise.all(NAMES.map((name, index) => nodeOf(name, index + 1)));
});
afterEach(async () => {
  for (const { logs, end } of nodes) {
    await end();
    await logs.close();
  }
  rmSync(folder, { recursive: true });
});

async function nodeOf(name: string, number: number): Promise<Node> {
  const own = await certifyNode(authority, number);
  const logs = new LogStore({
    folder: path.join(folder, name),
    clock: { now: () => time } as never,
    maxBytes: 100_000,
  });
  let links: PeerLinks | undefined;
  const others = new Questions({
    own: name,
    peers: () => NAMES.map((one, index) => ({ name: one, number: index + 1 })).filter((one) => one.name !== name),
    dial: (node, purpose) => (links as PeerLinks).dial(node, purpose),
  });
  const watched: string[] = [];
  const watch = (slug: string) => {
    watched.push(slug);
    return { told: Promise.resolve(), end: () => void watched.splice(watched.indexOf(slug), 1) };
  };
  const node: Node = {
    logs,
    told: new NodeLogs({ logs, liveRequests: { watch }, others, now: () => time }),
    hangs: false,
    watched,
    async begin() {
      links = new PeerLinks({
        authority: authority.certificate,
        own,
        admits: () => true,
        addressOf: (number) => ({ host: '127.0.0.1', port: ports.get(number) ?? 0 }),
        onConnection: (purpose, stream: Duplex, from) =>
          void (node.hangs || others.receive(JSON.parse(purpose), stream, from)),
      });
      ports.set(number, await links.listen('127.0.0.1', 0));
    },
    async end() {
      await links?.close();
      links = undefined;
    },
  };
  await node.begin();
  return node;
}

async function say(node: number, text: string): Promise<void> {
  time++;
  await nodes[node]?.logs.append(TENANT, { kind: 'console', level: 'log', text });
}
const at = (node: number) => nodes[node] as Node;
const from = (after?: string, limit = 100) => ({ tenant: TENANT, limit, after, since: 0 });
const textOf = (line: LogLine) => `${line.node}: ${line.kind === 'request' ? line.path : line.text}`;
const read = async (node: number, after?: string, limit?: number) => {
  const { lines, missing } = await at(node).told.read(from(after, limit));
  return { lines, texts: lines.map(textOf), missing };
};
const idOf = (line?: LogLine) => String(line && 'id' in line ? line.id : undefined);

it('is read at any node, in order of time, and goes on after any line at any other', async () => {
  for (const [index, node] of [0, 1, 2, 1, 0].entries()) await say(node, String(index));
  const all = ['a: 0', 'b: 1', 'c: 2', 'b: 3', 'a: 4'];
  const { lines } = await read(0);
  for (const node of [0, 1, 2]) expect((await read(node)).texts).toEqual(all);
  for (const [index, line] of lines.entries())
    expect((await read(index % 3, idOf(line))).texts).toEqual(all.slice(index + 1));
  expect((await read(1, undefined, 2)).texts).toEqual(all.slice(3));
  expect(new Set(lines.map(idOf)).size).toBe(all.length);
  for (const after of ['x', '1;', '1;a', '1;a=x', '1;../b=1']) {
    await expect(read(0, after)).rejects.toMatchObject({ code: 'invalid_field' });
  }
});

it('names a node that is gone and one that hangs, and waits for neither for long', async () => {
  for (const node of [0, 1, 2]) await say(node, 'kept');
  await at(1).end();
  at(2).hangs = true;
  const began = performance.now();
  expect(await read(0)).toMatchObject({ texts: ['a: kept'], missing: ['b', 'c'] });
  expectTime('a log of which two nodes say nothing', performance.now() - began, 15_000);
});

it('is followed at all nodes, with requests; what a node says while it is not reached comes when it is', async () => {
  await say(1, 'before');
  const ended = new AbortController();
  const seen: string[] = [];
  const following = (async () => {
    for await (const line of at(0).told.follow(from(), 'slug', ended.signal)) seen.push(textOf(line));
  })();
  await expect
    .poll(() => nodes.map(({ watched }) => watched), { timeout: 30_000 })
    .toEqual([['slug'], ['slug'], ['slug']]);
  await say(0, 'own');
  await say(2, 'other');
  at(1).logs.tell(TENANT, { kind: 'request', time, method: 'GET', path: '/x', status: 200, ms: 1 });
  await expect.poll(() => seen.toSorted()).toEqual(['a: own', 'b: /x', 'b: before', 'c: other']);
  await at(1).end();
  const gone = 'b: The node b does not answer. What it logs is told once it does.';
  await expect.poll(() => seen.at(-1)).toBe(gone);
  await say(1, 'meanwhile');
  await say(2, 'goes on');
  await expect.poll(() => seen.at(-1)).toBe('c: goes on');
  await at(1).begin();
  await expect.poll(() => seen.at(-1)).toBe('b: meanwhile');
  expect(seen.filter((text) => text === gone)).toHaveLength(1);
  ended.abort();
  await following;
  await expect.poll(() => nodes.map(({ watched }) => watched)).toEqual([[], [], []]);
}, 120_000);
