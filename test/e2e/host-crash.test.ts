/**
 * kill -9 of the supervisor, of storage and of both SQL processes while the handlers of a whole host write: whatever was
 * acknowledged is there afterwards, whole, and whatever was not is there whole or not at all.
 */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const WRITES = Number(process.env.CRASH_WRITES ?? 1_500);
const KINDS = ['kv', 'r2', 'd1'] as const;
/** Of each kind. */
const WRITERS = 2;
/** Writes of one request, side by side. */
const BATCH = 50;
const VICTIMS = ['storage', 'sql engine', 'supervisor', 'sql supervisor', 'storage', 'supervisor', 'sql engine'];
const COMMANDS: Record<string, RegExp> = {
  storage: /store-process\/main/,
  'sql supervisor': /d1\.mjs$/,
  'sql engine': /d1\.mjs engine$/,
};

/** Every id has its own content; one of 50 is too large to lie in the database of keys. */
const HANDLER = `
const content = (id) => id + ':' + String.fromCharCode(97 + (id % 26)).repeat(id % 50 === 0 ? 100_000 + id : id % 3000);
const judge = (id, value) => (value == null ? 'absent' : value === content(id) ? 'whole' : 'torn');
const write = {
  kv: (env, id) => env.STORE.put('k' + id, content(id)),
  r2: (env, id) => env.BUCKET.put('k' + id, content(id)),
  d1: (env, id) => env.DB.batch([
    env.DB.prepare('INSERT INTO first (id, value) VALUES (?, ?)').bind(id, content(id)),
    env.DB.prepare('INSERT INTO second (id) VALUES (?)').bind(id),
  ]),
};
const read = {
  kv: async (env, id) => judge(id, await env.STORE.get('k' + id)),
  r2: async (env, id) => judge(id, await (await env.BUCKET.get('k' + id))?.text()),
  async d1(env, id) {
    const row = await env.DB.prepare('SELECT value, (SELECT count(*) FROM second WHERE second.id = first.id) AS n '
      + 'FROM first WHERE id = ?').bind(id).first();
    return row && row.n !== 1 ? 'torn' : judge(id, row?.value);
  },
};
export default {
  async fetch(request, env) {
    const kind = new URL(request.url).pathname.slice(1);
    if (kind === 'setup') {
      await env.DB.exec('CREATE TABLE first (id INTEGER PRIMARY KEY, value TEXT)');
      await env.DB.exec('CREATE TABLE second (id INTEGER PRIMARY KEY)');
      return new Response('ready');
    }
    const ids = await request.json();
    if (request.method === 'PUT') {
      const outcomes = await Promise.allSettled(ids.map((id) => write[kind](env, id)));
      return Response.json(ids.filter((id, index) => outcomes[index].status === 'fulfilled'));
    }
    return Response.json(await Promise.all(ids.map((id) => read[kind](env, id))));
  },
};
`;

let host: TestHost;
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'silent' } });
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'crash',
    code: HANDLER,
    bindings: { kv: true, d1: true, r2: true },
  });
  expect(await (await fetch(`${host.url}/crash/setup`)).text()).toBe('ready');
});
afterAll(async () => {
  await host?.stop();
  // A host that was started again leaves its folder alone.
  if (host) rmSync(host.data, { recursive: true, force: true });
});

async function ask<T>(method: string, kind: string, ids: number[]): Promise<T | undefined> {
  try {
    const response = await fetch(`${host.url}/crash/${kind}`, {
      method,
      body: JSON.stringify(ids),
      signal: AbortSignal.timeout(30_000),
    });
    return response.status === 200 ? ((await response.json()) as T) : undefined;
  } catch {
    // The process that would have answered is gone.
    return undefined;
  }
}

async function kill(victim: string): Promise<void> {
  if (victim === 'supervisor') {
    await host.kill();
    host = await host.restart();
    return;
  }
  const pattern = COMMANDS[victim] ?? /never/;
  const pid = await until(() => processTree([host.pid]).find((one) => pattern.test(commandOf(one))));
  process.kill(pid, 'SIGKILL');
}

it(`${WRITES} acknowledged writes of each kind are whole after ${VICTIMS.join(', ')} were killed`, async () => {
  const acknowledged = { kv: new Set<number>(), r2: new Set<number>(), d1: new Set<number>() };
  const asked = { kv: 0, r2: 0, d1: 0 };
  let killed = 0;
  const write = async (kind: (typeof KINDS)[number]): Promise<void> => {
    while (acknowledged[kind].size < WRITES || killed < VICTIMS.length) {
      const ids = Array.from({ length: BATCH }, () => ++asked[kind]);
      const kept = await ask<number[]>('PUT', kind, ids);
      for (const id of kept ?? []) acknowledged[kind].add(id);
      // What was in flight is not asked for again: it may have been written.
      if (!kept) await until(() => ask('POST', kind, []));
    }
  };
  const killer = async (): Promise<void> => {
    for (const victim of VICTIMS) {
      const share = (WRITES * (killed + 1)) / (VICTIMS.length + 1);
      await until(() => KINDS.some((kind) => acknowledged[kind].size > share));
      await kill(victim);
      killed += 1;
    }
  };
  await Promise.all([killer(), ...KINDS.flatMap((kind) => Array.from({ length: WRITERS }, () => write(kind)))]);
  await kill('supervisor');

  const verify = async (kind: (typeof KINDS)[number]): Promise<void> => {
    const found = { lost: 0, torn: 0, whole: 0 };
    const ids = Array.from({ length: asked[kind] }, (_, index) => index + 1);
    for (let from = 0; from < ids.length; from += 500) {
      const some = ids.slice(from, from + 500);
      const states = await until(() => ask<string[]>('POST', kind, some));
      for (const [index, id] of some.entries()) {
        if (states[index] === 'whole') found.whole += 1;
        else if (states[index] === 'torn') found.torn += 1;
        else if (acknowledged[kind].has(id)) found.lost += 1;
      }
    }
    console.log(`${kind}: ${acknowledged[kind].size} acknowledged of ${ids.length} asked for, ${found.whole} there`);
    expect(found, kind).toMatchObject({ lost: 0, torn: 0 });
    expect(acknowledged[kind].size).toBeGreaterThanOrEqual(WRITES);
  };
  await Promise.all(KINDS.map(verify));
});
