/**
 * Requests a second and CPU a request of STORE and BUCKET through a real handler, beside Miniflare with the same
 * handler. Run: node test/bench/storage.ts [seconds]. Load by wrk, which has to be installed.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Miniflare } from 'miniflare';
import { cpuMicroseconds, StorageRig } from '../e2e/storage-rig.ts';

const seconds = Number(process.argv[2] ?? 4);
const only = process.argv[3];

interface Subject {
  name: string;
  origin: string;
  pids: () => number[];
  stop: () => Promise<void>;
}

interface Row {
  subject: string;
  operation: string;
  perSecond: number;
  cpu: number;
  p99: string;
  errors: string;
}

const OPERATIONS = [
  { name: 'KV get 1 KiB', path: '/kv/get/hot', seed: { path: '/kv/put/hot', bytes: 1024 } },
  { name: 'KV put 1 KiB', path: '/kv/put1k/k', seed: undefined },
  { name: 'R2 get 100 KiB', path: '/r2/get/hot', seed: { path: '/r2/put/hot', bytes: 102_400 } },
  { name: 'R2 put 100 KiB', path: '/r2/put100k/k', seed: undefined },
];

async function turnpike(): Promise<Subject> {
  const rig = await StorageRig.start();
  return {
    name: 'turnpike',
    origin: rig.origin,
    pids: () => [rig.storage.pid ?? 0, rig.workerd?.pid ?? 0],
    stop: () => rig.stop(),
  };
}

async function miniflare(): Promise<Subject> {
  const folder = mkdtempSync(join(tmpdir(), 'bench-miniflare-'));
  const fixtures = fileURLToPath(new URL('../fixtures/bindings/', import.meta.url));
  const server = new Miniflare({
    modulesRoot: fixtures,
    modules: ['worker.js', 'expect.js', 'kv-cases.js', 'r2-cases.js'].map((name) => ({
      type: 'ESModule' as const,
      path: join(fixtures, name),
    })),
    compatibilityDate: '2026-01-01',
    kvNamespaces: ['STORE'],
    r2Buckets: ['BUCKET'],
    kvPersist: join(folder, 'kv'),
    r2Persist: join(folder, 'r2'),
    port: 0,
  });
  const origin = (await server.ready).origin;
  return {
    name: 'miniflare',
    origin,
    pids: () => [process.pid, ...childrenOf(process.pid)],
    stop: async () => {
      await server.dispose();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function childrenOf(pid: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/status`, 'utf8').includes(`PPid:\t${pid}\n`);
      } catch {
        return false;
      }
    })
    .map(Number);
}

async function measure(subject: Subject): Promise<Row[]> {
  const rows: Row[] = [];
  for (const { seed } of OPERATIONS) {
    if (!seed) continue;
    const response = await fetch(subject.origin + seed.path, { method: 'PUT', body: 'x'.repeat(seed.bytes) });
    if (!response.ok) throw new Error(`${subject.name} did not take the seed: ${await response.text()}`);
    await response.arrayBuffer();
  }
  for (const operation of OPERATIONS) {
    if (only && !operation.name.includes(only)) continue;
    const load = (duration: number) =>
      execFileSync('wrk', ['-t1', '-c32', `-d${duration}s`, '--latency', subject.origin + operation.path], {
        encoding: 'utf8',
      });
    load(1);
    const pids = subject.pids();
    const before = pids.map(cpuMicroseconds).reduce((a, b) => a + b, 0);
    const report = load(seconds);
    const used = pids.map(cpuMicroseconds).reduce((a, b) => a + b, 0) - before;
    const requests = Number(/(\d+) requests in/.exec(report)?.[1] ?? 0);
    rows.push({
      subject: subject.name,
      operation: operation.name,
      perSecond: Math.round(requests / seconds),
      cpu: Math.round(used / requests),
      p99: /99%\s+(\S+)/.exec(report)?.[1] ?? '?',
      errors: /Non-2xx or 3xx responses: (\d+)/.exec(report)?.[1] ?? '0',
    });
    console.log(rows.at(-1));
  }
  return rows;
}

if (spawnSync('wrk', ['-v']).error) throw new Error('wrk is not installed: apt-get install wrk');
const all: Row[] = [];
for (const start of [turnpike, miniflare]) {
  const subject = await start();
  try {
    all.push(...(await measure(subject)));
  } finally {
    await subject.stop();
  }
}
console.log('| operation | turnpike req/s (CPU µs) | miniflare req/s (CPU µs) | ratio |\n| --- | --- | --- | --- |');
for (const ours of all.filter((row) => row.subject === 'turnpike')) {
  const theirs = all.find((row) => row.subject === 'miniflare' && row.operation === ours.operation);
  if (!theirs) continue;
  console.log(
    `| ${ours.operation} | ${ours.perSecond} (${ours.cpu}) | ${theirs.perSecond} (${theirs.cpu}) | ${(ours.perSecond / theirs.perSecond).toFixed(1)} × |`,
  );
}
