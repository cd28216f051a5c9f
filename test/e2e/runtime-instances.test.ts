/** A slug that wants more than one core is served by two instances, and by one again, without a lost request. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RuntimeRig } from './runtime-rig.ts';
import { until } from './support/until.ts';

/** Each instance has an id; a request costs CPU, whatever the clock shows. */
const BUSY = (version: string) => `
const id = {};
function burn() { let x = 1; for (let i = 0; i < 1e6; i++) x = (x * 48271) % 2147483647; return x; }
export default {
  async fetch(request) {
    id.is ??= crypto.randomUUID();
    const { pathname } = new URL(request.url);
    if (pathname === '/swell') for (const kept = []; ; ) kept.push(new Array(1e6).fill(kept.length + 0.5));
    if (pathname === '/slow') return new Response(new ReadableStream({
      async start(c) {
        c.enqueue(new TextEncoder().encode(id.is + ' '));
        for (let i = 0; i < 28; i++) { await scheduler.wait(500); c.enqueue(new TextEncoder().encode('.')); }
        c.close();
      },
    }));
    return new Response('${version} ' + id.is + ' ' + (burn() > 0));
  },
  scheduled() { console.log('cron ran'); },
};`;

const OBJECTS = `
import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async next() { const n = ((await this.ctx.storage.get('n')) ?? 0) + 1; await this.ctx.storage.put('n', n); return n; }
}
function burn() { let x = 1; for (let i = 0; i < 1e6; i++) x = (x * 48271) % 2147483647; return x; }
export default { async fetch(request, env) { burn(); return new Response(String(await env.COUNTER.getByName('one').next())); } };`;

let rig: RuntimeRig;

beforeAll(async () => {
  // Whether cores are idle is not this machine's to decide.
  rig = await RuntimeRig.start({ runtime: { instances: 2, idleCores: 0 } });
});
afterAll(() => rig?.stop());

/** Calls without a pause, until it is stopped. */
function callers(slug: string, count: number) {
  const texts: string[] = [];
  const failures: string[] = [];
  let stopped = false;
  const all = Array.from({ length: count }, async () => {
    while (!stopped) {
      const answer = await rig.fetch(slug).catch((error: Error) => error);
      if (answer instanceof Error) failures.push(answer.message);
      else if (answer.status === 200) texts.push(await answer.text());
      else failures.push(await answer.text());
    }
  });
  const stop = async () => {
    stopped = true;
    await Promise.all(all);
  };
  return { texts, failures, stop };
}

const instancesOf = (slug: string) => rig.runtime.status(slug).instances ?? 1;
const idOf = (text: string) => text.split(' ')[1] ?? '';

it('two serve while one core is not enough, through an update, and one again', async () => {
  await rig.deploy('busy', BUSY('v1'));
  await rig.deploy('objects', OBJECTS, { bindings: { durableObjects: { COUNTER: { class: 'Counter' } } } });
  const load = callers('busy', 6);
  const counting = callers('objects', 4);
  await until(() => instancesOf('busy') === 2, 'a second instance');
  // Both serve.
  const since = load.texts.length;
  await until(() => new Set(load.texts.slice(since).map(idOf)).size === 2, 'answers of both');
  await counting.stop();
  // What has objects wanted as much, and stays in one process.
  expect(instancesOf('objects')).toBe(1);
  expect(counting.failures).toEqual([]);
  expect(counting.texts.map(Number).sort((a, b) => a - b)).toEqual(counting.texts.map((_, index) => index + 1));

  await rig.deploy('busy', BUSY('v2'));
  await rig.runtime.activate('busy');
  expect(instancesOf('busy')).toBe(2);
  const asked = await Promise.all(Array.from({ length: 8 }, () => rig.text('busy')));
  expect(asked.filter((text) => !text.startsWith('v2'))).toEqual([]);
  expect(new Set(asked.map(idOf)).size).toBe(2);

  expect(await rig.runtime.runScheduled('busy', '* * * * *', Date.now())).toMatchObject({ outcome: 'ok' });
  await rig.logged('busy', /cron ran/);
  expect((await rig.log('busy')).filter((entry) => entry.text === 'cron ran')).toHaveLength(1);

  // Answers that are under way when nothing else is to be done.
  const slow = Array.from({ length: 4 }, () => rig.text('busy', '/slow'));
  await load.stop();
  expect(load.failures).toEqual([]);
  await until(() => instancesOf('busy') === 1, 'the second to go');
  const texts = await Promise.all(slow);
  expect(texts.map((text) => text.split(' ')[1])).toEqual(texts.map(() => '.'.repeat(28)));
  expect(new Set(texts.map((text) => text.split(' ')[0])).size).toBe(2);
  await rig.logged('busy', /Fewer instances are enough/);
});

it('an instance that is killed takes its own requests along, and the other serves on', async () => {
  await rig.deploy('attacked', BUSY('v1'));
  const load = callers('attacked', 6);
  await until(() => instancesOf('attacked') === 2, 'a second instance');
  const attack = await rig.fetch('attacked', '/swell', { method: 'POST' });
  expect(attack.status).toBe(503);
  expect(await attack.json()).toMatchObject({ code: 'memory_exceeded' });
  await until(() => instancesOf('attacked') === 1, 'its end');
  const since = load.texts.length;
  await until(() => load.texts.length > since + 5, 'answers of the one that is left');
  await load.stop();
  expect(new Set(load.texts.slice(since).map(idOf)).size).toBe(1);
  // One that the other instance was asked has failed at most for each caller.
  expect(load.failures.length).toBeLessThanOrEqual(6);
  for (const failure of load.failures) expect(JSON.parse(failure)).toMatchObject({ code: 'memory_exceeded' });
});
