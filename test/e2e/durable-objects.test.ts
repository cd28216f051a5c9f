/** Durable Objects in the sandbox of their tenant: state, SQL, alarms, sockets, RPC, updates, quota, kill -9. */
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import WebSocket from 'ws';
import { folderSize } from '../../host/bindings/durable-objects/folder.ts';
import { usageOf } from '../../host/sandbox/process-tree.ts';
import { expectTime } from '../times.ts';
import { RuntimeRig } from './runtime-rig.ts';
import { until } from './support/until.ts';

const CODE = `
import { DurableObject } from 'cloudflare:workers';
export class Room extends DurableObject {
  version() { return VERSION; }
  async add(text) {
    const { sql } = this.ctx.storage;
    sql.exec('CREATE TABLE IF NOT EXISTS said (text TEXT)');
    sql.exec('INSERT INTO said VALUES (?)', text);
    return sql.exec('SELECT count(*) AS n FROM said').one().n;
  }
  async fill(bytes, times) {
    const { sql } = this.ctx.storage;
    sql.exec('CREATE TABLE IF NOT EXISTS filler (bytes BLOB)');
    for (let i = 0; i < times; i++) {
      sql.exec('INSERT INTO filler VALUES (randomblob(?))', bytes);
      await this.ctx.storage.sync();
    }
    return 'filled';
  }
  async all() {
    return this.ctx.storage.sql.exec('SELECT text FROM said ORDER BY rowid').toArray().map(({ text }) => text);
  }
  async wake(ms) { await this.ctx.storage.setAlarm(Date.now() + ms); return Date.now() + ms; }
  async alarms() { return (await this.ctx.storage.get('alarms')) ?? []; }
  async alarm() {
    const alarms = await this.alarms();
    await this.ctx.storage.put('alarms', [...alarms, Date.now()]);
  }
  thin() {
    this.ctx.storage.sql.exec('DELETE FROM filler WHERE rowid % 2');
    return 'thinned';
  }
  async wipe() { await this.ctx.storage.deleteAll(); return 'wiped'; }
  async slow(ms) { await scheduler.wait(ms); return 'slow is done'; }
  fetch(request) {
    const [client, server] = Object.values(new WebSocketPair());
    this.ctx.acceptWebSocket(server);
    server.serializeAttachment(new URL(request.url).searchParams.get('name'));
    return new Response(null, { status: 101, webSocket: client });
  }
  webSocketMessage(socket, message) {
    const name = socket.deserializeAttachment();
    for (const other of this.ctx.getWebSockets()) other.send(name + ': ' + message);
  }
}
export class Other extends DurableObject {
  async set(value) { await this.ctx.storage.put('value', value); return value; }
  async get() { return (await this.ctx.storage.get('value')) ?? 'nothing'; }
}
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const [, kind, name, method, ...args] = url.pathname.split('/');
    if (kind === 'plain') return new Response('plain ' + VERSION);
    const namespace = env[kind];
    const id = namespace.idFromName(name);
    if (method === 'id') return new Response(id.toString());
    const stub = namespace.get(id);
    if (request.headers.get('upgrade')) return stub.fetch(request);
    try {
      return Response.json(await stub[method](...args.map((arg) => (/^\\d+$/.test(arg) ? Number(arg) : arg))));
    } catch (error) {
      return new Response(String(error), { status: 507 });
    }
  },
};
`;
const code = (version: number, rename = false) =>
  CODE.replaceAll('VERSION', String(version)).replaceAll('class Room', rename ? 'class Hall' : 'class Room');
const BINDINGS = { durableObjects: { ROOMS: { class: 'Room' }, OTHERS: { class: 'Other', sql: false } } };

/** Bytes. */
const QUOTA = 32_000_000;

let rig: RuntimeRig;
beforeAll(async () => {
  rig = await RuntimeRig.start({ storage: { durableObjectBytes: QUOTA } });
  await rig.deploy('chat', code(1), { bindings: BINDINGS });
});
afterAll(() => rig?.stop());

/** Unlike a GET it is not sent again where the connection breaks. */
const POST = { method: 'POST' };
const call = async (path: string, slug = 'chat') => JSON.parse(await rig.text(slug, path)) as unknown;
const folderOf = (slug: string) => join(rig.tenants, rig.tenantOf(slug), 'durableObjects');

describe('state', () => {
  test('is kept in the object, by SQL and by keys, over a stop', async () => {
    expect(await call('/ROOMS/a/add/hello')).toBe(1);
    expect(await call('/ROOMS/a/add/again')).toBe(2);
    expect(await call('/ROOMS/b/add/elsewhere')).toBe(1);
    expect(await call('/OTHERS/a/set/kept')).toBe('kept');
    const id = await rig.text('chat', '/ROOMS/a/id');
    await rig.runtime.stop('chat', 'idle', { drainMs: 0 });
    expect(await call('/ROOMS/a/all')).toEqual(['hello', 'again']);
    expect(await call('/OTHERS/a/get')).toBe('kept');
    expect(await rig.text('chat', '/ROOMS/a/id')).toBe(id);
  });

  test('of what was acknowledged nothing is lost by kill -9', async () => {
    for (let round = 0; round < 3; round++) {
      let acknowledged = 0;
      const name = `kill${round}`;
      let killed = false;
      const writing = (async () => {
        while (!killed) {
          const answer = await rig.fetch('chat', `/ROOMS/${name}/add/${acknowledged + 1}`, POST).catch(() => undefined);
          if (!answer?.ok) return;
          acknowledged = (await answer.json()) as number;
        }
      })();
      await until(async () => acknowledged > 20 + round * 7);
      process.kill(rig.pidOf('chat'), 'SIGKILL');
      // A sender that is between two requests may not notice the kill.
      killed = true;
      await writing;
      const kept = (await until(async () => {
        const answer = await rig.fetch('chat', `/ROOMS/${name}/all`);
        return answer.ok ? ((await answer.json()) as string[]) : undefined;
      })) as string[];
      expect(kept.length).toBeGreaterThanOrEqual(acknowledged);
      expect(kept.map(Number)).toEqual(kept.map((_, index) => index + 1));
    }
  });
});

describe('alarms', () => {
  test('fire while it runs, and start it where it does not', async () => {
    const warm = (await call('/ROOMS/warm/wake/300')) as number;
    const fired = await until(
      async () => ((await call('/ROOMS/warm/alarms')) as number[])[0],
      'the alarm of a running instance',
    );
    expectTime('an alarm of a running instance', fired - warm, 1_000);

    const cold = (await call('/ROOMS/cold/wake/1500')) as number;
    await rig.runtime.stop('chat', 'idle', { drainMs: 0 });
    expect(rig.runtime.status('chat').state).toBe('cold');
    await until(() => rig.runtime.status('chat').state === 'warm', 'the start for an alarm');
    const woken = await until(async () => ((await call('/ROOMS/cold/alarms')) as number[])[0]);
    expect(woken - cold).toBeGreaterThanOrEqual(0);
    expectTime('an alarm that starts its instance', woken - cold, 1_000);
  });

  test('that were set before a kill of the host are found by the next', async () => {
    const at = (await call('/ROOMS/later/wake/2500')) as number;
    process.kill(rig.pidOf('chat'), 'SIGKILL');
    await rig.runtime.close();
    await rig.startRuntime();
    rig.runtime.watchAlarms([{ slug: 'chat', tenant: rig.tenantOf('chat') }]);
    await until(() => rig.runtime.status('chat').state === 'warm');
    const fired = await until(async () => ((await call('/ROOMS/later/alarms')) as number[])[0]);
    expectTime('an alarm of a stopped instance', fired - at, 1_000);
  });

  test('a list of alarms that is no database is refused, and harms nobody', async () => {
    await rig.deploy('broken', code(1), { bindings: BINDINGS });
    expect(await call('/ROOMS/a/add/x', 'broken')).toBe(1);
    await rig.runtime.stop('broken', 'idle', { drainMs: 0 });
    writeFileSync(join(folderOf('broken'), 'Room', 'metadata.sqlite'), Buffer.alloc(50_000, 'x'));
    rig.runtime.watchAlarms([{ slug: 'broken', tenant: rig.tenantOf('broken') }]);
    const at = (await call('/ROOMS/next/wake/1200')) as number;
    await rig.runtime.stop('chat', 'idle', { drainMs: 0 });
    await until(() => rig.runtime.status('chat').state === 'warm');
    const fired = await until(async () => ((await call('/ROOMS/next/alarms')) as number[])[0]);
    expectTime('an alarm beside a broken list', fired - at, 1_500);
  });
});

describe('sockets', () => {
  test('hibernate: two thousand on one object, in less than 200 MB', async () => {
    const join = (name: string) => new WebSocket(`ws://127.0.0.1:${rig.port}/chat/ROOMS/lobby/socket?name=${name}`);
    const sockets: WebSocket[] = [];
    for (let batch = 0; batch < 20; batch++) {
      const some = Array.from({ length: 100 }, (_, index) => join(`s${batch * 100 + index}`));
      await Promise.all(some.map((socket) => once(socket, 'open')));
      sockets.push(...some);
    }
    const heard = Promise.all(sockets.map((socket) => once(socket, 'message')));
    sockets[7]?.send('hello all');

    expect(new Set((await heard).map(([data]) => String(data)))).toEqual(new Set(['s7: hello all']));
    const { privateBytes } = usageOf(rig.pidOf('chat')) ?? { privateBytes: Number.POSITIVE_INFINITY };
    expect(privateBytes).toBeLessThan(200_000_000);
    for (const socket of sockets) socket.terminate();
  });
});

describe('an update', () => {
  test('under load hands the objects over: no request fails, nothing is lost, nobody has them twice', async () => {
    await rig.deploy('busy', code(1), { bindings: BINDINGS });
    let stop = false;
    const failures: string[] = [];
    const versions = new Set<unknown>();
    let added = 0;
    const objects = async (name: string) => {
      for (let count = 1; !stop; count++) {
        const answer = await rig.fetch('busy', `/ROOMS/${name}/add/x`);
        if (!answer.ok || (await answer.json()) !== count) failures.push(`${answer.status} ${name} ${count}`);
        versions.add(await (await rig.fetch('busy', `/ROOMS/${name}/version`)).json());
        added++;
      }
    };
    const plain = async () => {
      while (!stop) {
        const answer = await rig.fetch('busy', '/plain');
        if (!answer.ok || !(await answer.text()).startsWith('plain')) failures.push(`plain ${answer.status}`);
      }
    };
    const load = Promise.all([objects('a'), objects('b'), objects('c'), plain(), plain()]);
    await until(() => added > 30);
    for (const version of [2, 3, 4]) {
      const before = added;
      await rig.deploy('busy', code(version), { bindings: BINDINGS });
      await rig.runtime.activate('busy');
      await until(() => added > before + 30);
    }
    stop = true;
    await load;
    expect(failures).toEqual([]);
    expect([...versions]).toEqual([1, 2, 3, 4]);
  });

  test('lets a call in flight end, and does not wait for an open socket', async () => {
    await rig.deploy('busy', code(5), { bindings: BINDINGS });
    await rig.runtime.activate('busy');
    const socket = new WebSocket(`ws://127.0.0.1:${rig.port}/busy/ROOMS/lobby/socket?name=x`);
    await once(socket, 'open');
    const closed = once(socket, 'close');
    const slow = call('/ROOMS/a/slow/700', 'busy');
    await rig.deploy('busy', code(6), { bindings: BINDINGS });
    const startedAt = performance.now();
    await rig.runtime.activate('busy');
    expectTime('an update that lets a call end', performance.now() - startedAt, 6_000);
    expect(await slow).toBe('slow is done');
    await closed;
    expect(await call('/ROOMS/a/version', 'busy')).toBe(6);
  });

  test('that does not start leaves the old version and its objects', async () => {
    await rig.deploy('busy', 'throw new Error("not today"); export default {};', {
      bindings: BINDINGS,
    });
    await expect(rig.runtime.activate('busy')).rejects.toThrow(/not today/);
    expect(await rig.text('busy', '/plain')).toBe('plain 6');
    expect(await call('/ROOMS/a/version', 'busy')).toBe(6);
  });

  test('may add objects to a deployment without any, rename a class, and delete one', async () => {
    await rig.deploy('grows', 'export default { fetch() { return new Response("small"); } };');
    expect(await rig.text('grows')).toBe('small');
    await rig.deploy('grows', code(1), { bindings: BINDINGS });
    await rig.runtime.activate('grows');
    expect(await call('/ROOMS/a/add/before', 'grows')).toBe(1);
    expect(await call('/OTHERS/a/set/gone', 'grows')).toBe('gone');
    const id = await rig.text('grows', '/ROOMS/a/id');

    const renamed = { ROOMS: { class: 'Hall', id: 'Room' }, OLD: { id: 'Other', deleted: true } };
    await rig.deploy('grows', code(2, true), { bindings: { durableObjects: renamed } });
    await rig.runtime.activate('grows');
    expect(await call('/ROOMS/a/all', 'grows')).toEqual(['before']);
    expect(await rig.text('grows', '/ROOMS/a/id')).toBe(id);
    expect(readdirSync(folderOf('grows'))).toEqual(['Room']);
  });
});

describe('the quota', () => {
  test('bounds all objects together; a full disk can be read and cleared', async () => {
    await rig.deploy('hoarder', code(1), { bindings: BINDINGS });
    expect(await call('/ROOMS/keep/add/kept', 'hoarder')).toBe(1);
    const retried = async (path: string) => {
      let said = '';
      const answered = async () => {
        const answer = await rig.fetch('hoarder', path, POST);
        said = await answer.text();
        return answer.ok ? (JSON.parse(said) as unknown) : undefined;
      };
      return until(answered, () => `${path}, which says ${said}`);
    };
    let made = 0;
    const fill = async () => (await rig.fetch('hoarder', `/ROOMS/big${made++}/fill/50000/10`, POST)).ok;
    while (await fill());
    await rig.logged('hoarder', /storage_exceeded/);
    // What is left for logs is taken for more objects: it gets far beyond the quota.
    while ((await folderSize(folderOf('hoarder'))).bytes < 2 * QUOTA)
      if (!(await fill())) await retried('/ROOMS/keep/all');
    await rig.runtime.stop('hoarder', 'idle', { drainMs: 0 });
    expect(await retried('/ROOMS/keep/all')).toEqual(['kept']);
    expect(await retried('/ROOMS/big0/thin')).toBe('thinned');
    let status = 200;
    while (status === 200) ({ status } = await rig.fetch('hoarder', '/ROOMS/more/fill/100000/10', POST));
    expect(status).toBe(507);
    for (let index = 0; index < made; index++) expect(await retried(`/ROOMS/big${index}/wipe`)).toBe('wiped');
    // By itself, without another call.
    await rig.logged('hoarder', /have room again/);
    expect(await retried('/ROOMS/more/fill/100000/2')).toBe('filled');
    expect(await call('/ROOMS/keep/all', 'hoarder')).toEqual(['kept']);
  });
});
