/** Instances as they really run: started on demand, replaced, ended, and watched, behind the real edge. */
import { existsSync, readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { InstanceSpec } from '../../host/shared/contracts.ts';
import { expectTime } from '../times.ts';
import { RuntimeRig } from './runtime-rig.ts';
import { until } from './support/until.ts';

const HELLO = (text: string) => `export default { fetch: () => new Response(${JSON.stringify(text)}) }`;

let rig: RuntimeRig;

beforeAll(async () => {
  rig = await RuntimeRig.start({
    runtime: { idleMs: 4_000, bloatedIdleMs: 300, bloatedBytes: 60_000_000, cpuStallMs: 1_500, startTimeoutMs: 4_000 },
  });
});
afterAll(() => rig?.stop());

describe('start on demand', () => {
  it('starts with the first request and shares one start among many', async () => {
    await rig.deploy('hello', HELLO('hi'));
    expect(rig.runtime.status('hello').state).toBe('cold');
    const answers = await Promise.all(Array.from({ length: 20 }, () => rig.text('hello')));
    expect(new Set(answers)).toEqual(new Set(['hi']));
    expect(rig.runtime.status('hello')).toMatchObject({ state: 'warm' });
    expect(rig.events.filter((event) => event.type === 'started' && event.slug === 'hello')).toHaveLength(1);
  });

  it('tells the owner what a version that does not start says, and others are untouched', async () => {
    await rig.deploy('broken', 'export default { fetch() {} }; throw new TypeError("at the top");');
    const response = await rig.fetch('broken');
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({ code: 'start_failed' });
    await rig.logged('broken', /at the top.*/);
    expect(await rig.text('hello')).toBe('hi');
  });

  it('ends when idle, removes its sockets, and comes back', async () => {
    await rig.deploy('sleepy', HELLO('awake'));
    expect(await rig.text('sleepy')).toBe('awake');
    const cell = basename(dirname(dirname(rig.socketOf('sleepy') ?? '')));
    expect(existsSync(join(rig.folder, 'run', 'c', cell))).toBe(true);
    await rig.logged('sleepy', /Nobody used it/);
    await until(() => !existsSync(join(rig.folder, 'run', 'c', cell)), 'its folder to be gone');
    expect(rig.runtime.status('sleepy')).toMatchObject({ state: 'cold', lastExit: { reason: 'idle' } });
    expect(await rig.text('sleepy')).toBe('awake');
  });

  it('ends a swollen idle instance earlier', async () => {
    await rig.deploy(
      'swollen',
      'const kept = []; export default { fetch() { for (let i = 0; i < 80; i++) kept.push(new Uint8Array(1e6).fill(i)); return new Response("big") } }',
    );
    expect(await rig.text('swollen')).toBe('big');
    expect((await until(() => rig.runtime.status('swollen').lastExit, 'the swollen one to end')).reason).toBe(
      'swollen',
    );
  });

  it('is not idle while a request is in flight', async () => {
    await rig.deploy(
      'slow',
      'export default { fetch: () => new Response(new ReadableStream({ async start(c) { for (let i = 0; i < 6; i++) { c.enqueue(new TextEncoder().encode("x")); await scheduler.wait(500); } c.close(); } })) }',
    );
    expect(await rig.text('slow')).toBe('xxxxxx');
  });
});

describe('replacement', () => {
  it('brings a new version into service without a failed request', async () => {
    await rig.deploy('moving', HELLO('v0'));
    await rig.text('moving');
    let stop = false;
    const seen = new Set<string>();
    const failures: unknown[] = [];
    const callers = Array.from({ length: 8 }, async () => {
      while (!stop) {
        try {
          const response = await rig.fetch('moving');
          const text = await response.text();
          if (response.status === 200) seen.add(text);
          else failures.push(text);
        } catch (error) {
          failures.push(error);
        }
      }
    });
    for (let version = 1; version <= 5; version++) {
      await rig.deploy('moving', HELLO(`v${version}`));
      await rig.runtime.activate('moving');
      expect(await rig.text('moving')).toBe(`v${version}`);
    }
    stop = true;
    await Promise.all(callers);
    expect(failures).toEqual([]);
    expect(seen.size).toBeGreaterThanOrEqual(5);
  });

  it('takes the sandbox that was made while the update was checked; what nothing takes goes with the deployment', async () => {
    await rig.deploy('expected', HELLO('v1'));
    await rig.text('expected');
    const cell = dirname(dirname(rig.socketOf('expected') ?? ''));
    const waiting = () => readdirSync(cell).filter((name) => name.startsWith('g'));
    // With tail workers it is probed elsewhere.
    const spec = rig.specs.get('expected') as InstanceSpec;
    const planned = { ...spec, bindings: { ...spec.bindings, tails: { OTHER: { service: 'other' } } } };
    expect(rig.runtime.expectUpdate(planned)).toBeUndefined();
    expect(rig.runtime.expectUpdate(planned)).toBeUndefined();
    const [made] = await until(() => (waiting().length > 0 ? waiting() : undefined), 'a sandbox that waits');
    await rig.deploy('expected', HELLO('v2'));
    await rig.runtime.activate('expected');
    expect(await rig.text('expected')).toBe('v2');
    expect(basename(dirname(rig.socketOf('expected') ?? ''))).toBe(made);
    rig.runtime.expectUpdate(planned);
    await until(() => waiting().some((name) => name !== made), 'another that waits');
    await rig.runtime.stop('expected', 'stopped');
    await until(() => !existsSync(cell), 'its folder to be gone');
  });

  it('lets a long request of the old version end, and counts its CPU time', async () => {
    const streaming = (text: string) =>
      `export default { fetch: () => new Response(new ReadableStream({ async start(c) { let sum = 0; for (let i = 0; i < 4; i++) { c.enqueue(new TextEncoder().encode("${text}")); await scheduler.wait(300); for (let n = 0; n < 1e8; n++) sum += n; } c.enqueue(new Uint8Array(sum > 0 ? 0 : 1)); c.close(); } })) }`;
    await rig.deploy('long', streaming('a'));
    const old = await rig.fetch('long');
    await rig.deploy('long', streaming('b'));
    await rig.runtime.activate('long');
    expect(await rig.text('long')).toBe('bbbb');
    expect(await old.text()).toBe('aaaa');
    const ended = () => rig.events.find((one) => one.type === 'stopped' && one.slug === 'long');
    await until(() => ended() !== undefined, 'the end of the old version');
    expect(ended()).toMatchObject({ reason: 'replaced', cpuMs: expect.toSatisfy((cpuMs) => cpuMs > 100) });
  });

  it('keeps the old version when the new one does not start', async () => {
    await rig.deploy('careful', HELLO('good'));
    expect(await rig.text('careful')).toBe('good');
    await rig.deploy('careful', 'throw new Error("bad version"); export default { fetch() {} }');
    await expect(rig.runtime.activate('careful')).rejects.toMatchObject({ code: 'start_failed' });
    expect(await rig.text('careful')).toBe('good');
  });
});

describe('failures', () => {
  it('kills a busy loop, answers the caller why, and serves the next request', async () => {
    await rig.deploy(
      'loop',
      'export default { fetch(request) { if (new URL(request.url).pathname === "/loop") for (;;); return new Response("fine") } }',
    );
    expect(await rig.text('loop')).toBe('fine');
    const response = await rig.fetch('loop', '/loop');
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({ code: 'cpu_exceeded' });
    await rig.logged('loop', /cpu_exceeded/);
    expect(rig.runtime.status('loop').lastExit).toMatchObject({ reason: 'cpu_exceeded' });
    expect(await rig.text('loop')).toBe('fine');
  });

  it.each([
    [
      'JS heap',
      'const kept = []; export default { async fetch(r) { if (!r.url.endsWith("bomb")) return new Response("fine"); for (;; await scheduler.wait(0)) kept.push(new Array(1e5).fill(kept.length / 3)) } }',
    ],
    [
      'buffers',
      'const kept = []; export default { async fetch(r) { if (!r.url.endsWith("bomb")) return new Response("fine"); for (;; await scheduler.wait(0)) kept.push(new Uint8Array(4e6).fill(1)) } }',
    ],
  ])('kills a memory bomb in %s', async (name, code) => {
    const slug = `bomb-${name.toLowerCase().replace(' ', '-')}`;
    await rig.deploy(slug, code);
    const response = await rig.fetch(slug, '/bomb');
    const answer = await response.text();
    expect([response.status, answer]).toEqual([503, expect.stringContaining('memory_exceeded')]);
    await rig.logged(slug, /memory_exceeded/);
    expect(await rig.text(slug)).toBe('fine');
  });

  it.each([
    ['a memory bomb', 'kept.push(new Uint8Array(4e6).fill(1))', 'memory_exceeded'],
    ['a busy loop', 'for (;;);', 'cpu_exceeded'],
  ])('kills %s of a version that is being replaced', async (name, act, reason) => {
    const slug = name.replaceAll(' ', '-');
    const code = `const kept = [];
export default { async fetch(r) {
  if (!r.url.endsWith("act")) return new Response("old");
  await scheduler.wait(1_000);
  for (;; await scheduler.wait(0)) { ${act} }
} }`;
    await rig.deploy(slug, code);
    expect(await rig.text(slug)).toBe('old');
    const under = rig.fetch(slug, '/act');
    await rig.deploy(slug, HELLO('new'));
    await rig.runtime.activate(slug);
    const response = await under;
    expect([response.status, await response.text()]).toEqual([503, expect.stringContaining(reason)]);
    expect(await rig.text(slug)).toBe('new');
  });

  it('backs off from what keeps dying, and says why', async () => {
    await rig.deploy('dying', 'throw new Error("never starts"); export default { fetch() {} }');
    expect(await (await rig.fetch('dying')).json()).toMatchObject({ code: 'start_failed' });
    expect(await (await rig.fetch('dying')).json()).toMatchObject({ code: 'start_failed' });
    const refused = await rig.fetch('dying');
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await refused.json()).toMatchObject({ code: 'crash_loop', detail: expect.stringContaining('never starts') });
    await rig.deploy('dying', HELLO('alive'));
    await rig.runtime.activate('dying');
    expect(await rig.text('dying')).toBe('alive');
  });

  it('starts again at once after its process was killed from outside', async () => {
    await rig.deploy('killed', HELLO('here'));
    expect(await rig.text('killed')).toBe('here');
    const before = rig.runtime.status('killed').generation;
    process.kill(rig.pidOf('killed'), 'SIGKILL');
    const started = Date.now();
    await until(
      async () => (await rig.fetch('killed')).status === 200 && rig.runtime.status('killed').generation !== before,
    );
    expectTime('the next start after a kill', Date.now() - started, 2_000);
  });
});

describe('scheduled runs', () => {
  it('starts a cold instance and reports the outcome', async () => {
    await rig.deploy(
      'cron',
      'export default { fetch: () => new Response(), async scheduled(controller) { console.log("ran", controller.cron, controller.scheduledTime); if (controller.cron === "bad") throw new RangeError("no luck"); if (controller.cron === "loop") for (;;); } }',
    );
    expect(await rig.runtime.runScheduled('cron', '* * * * *', 60_000)).toMatchObject({ outcome: 'ok' });
    await rig.logged('cron', /ran \* \* \* \* \* 60000/);
    expect(await rig.runtime.runScheduled('cron', 'bad', 0)).toMatchObject({
      outcome: 'exception',
      error: 'RangeError: no luck',
    });
    expect(await rig.runtime.runScheduled('cron', 'loop', 0)).toMatchObject({ outcome: 'exceeded_cpu' });
    expect(await rig.runtime.runScheduled('nothing', 'x', 0)).toMatchObject({ outcome: 'not_started' });
  });
});

describe('an instance that runs on', () => {
  it('has its CPU time counted meanwhile', async () => {
    await rig.deploy(
      'worker',
      'export default { fetch() { const end = Date.now() + 300; while (Date.now() < end) for (let i = 0; i < 1e6; i++); return new Response("ok"); } }',
    );
    expect(await rig.text('worker')).toBe('ok');
    const used = () =>
      rig.events.reduce((sum, one) => sum + (one.type === 'used' && one.slug === 'worker' ? one.cpuMs : 0), 0);
    await until(async () => (await rig.text('worker')) === 'ok' && used() > 100, 'CPU time');
    expect(rig.events.filter(({ type, slug }) => type === 'stopped' && slug === 'worker')).toEqual([]);
    await rig.runtime.stop('worker', 'stopped');
    const [end] = rig.events.filter((one) => one.type === 'stopped' && one.slug === 'worker');
    expect(used()).toBe(end?.type === 'stopped' && end.cpuMs);
  });

  it('ends a scheduled run when a new version comes', async () => {
    const code =
      'export default { fetch: () => new Response(), async scheduled() { console.log("begun"); await scheduler.wait(7_000); } }';
    await rig.deploy('ends', code);
    const run = rig.runtime.runScheduled('ends', '* * * * *', 0);
    await rig.logged('ends', /begun/);
    await rig.deploy('ends', `${code} // new`);
    await rig.runtime.activate('ends');
    expect(await run).toMatchObject({ outcome: 'ok' });
  });
});

describe('a stop of the host', () => {
  it('tells a run that it cuts off from one that failed', async () => {
    const own = await RuntimeRig.start();
    try {
      await own.deploy(
        'slow',
        'export default { fetch: () => new Response(), async scheduled() { console.log("begun"); await scheduler.wait(60_000); } }',
      );
      const run = own.runtime.runScheduled('slow', '* * * * *', 0);
      await own.logged('slow', /begun/);
      await own.runtime.close();
      expect(await run).toMatchObject({ outcome: 'interrupted' });
      expect(await own.runtime.runScheduled('slow', '* * * * *', 0)).toMatchObject({ outcome: 'interrupted' });
    } finally {
      await own.stop();
    }
  });
});

describe('logs', () => {
  it('a long line holds nobody up', async () => {
    await rig.deploy(
      'shouter',
      'export default { fetch() { console.error("a".repeat(60_000)); console.error("done"); return new Response("ok"); } }',
    );
    let longest = 0;
    let last = performance.now();
    const timer = setInterval(() => {
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }, 10);
    expect(await rig.text('shouter')).toBe('ok');
    await rig.logged('shouter', /"done"/);
    clearInterval(timer);
    expectTime('the longest pause of the event loop', longest, 1_000);
  });

  it('carries console lines, masked secrets and mapped stacks', async () => {
    await rig.deploy(
      'talker',
      {
        main: 'src/index.ts',
        modules: {
          'src/index.ts':
            "import { fail } from './fail.ts';\nexport default { fetch(request: Request, env: { KEY: string }) {\n  console.warn('key is', env.KEY);\n  fail();\n} }",
          'src/fail.ts': '\n\nexport function fail(): never {\n  throw new Error("deep down");\n}',
        },
      },
      { secrets: { KEY: 'hunter2hunter2' } },
    );
    expect((await rig.fetch('talker')).status).toBe(500);
    expect(await rig.logged('talker', /key is/)).toMatchObject({ level: 'warn', text: 'key is [secret]' });
    const exception = await rig.logged('talker', /deep down/);
    expect(exception).toMatchObject({ kind: 'exception', stack: expect.stringContaining('src/fail.ts:4:') });
    expect(JSON.stringify(await rig.log('talker'))).not.toContain('hunter2');
  });

  it('tells of rejections that nobody waits for, with mapped stacks', async () => {
    await rig.deploy('floating', {
      main: 'src/index.ts',
      modules: {
        'src/index.ts':
          "async function fail(): Promise<never> {\n  throw new Error('nobody waits');\n}\n// Names that the host's own line must not meet.\nconst console = 1, addEventListener = 2, event = 3;\nexport default { fetch() { fail(); return new Response('done ' + (console + addEventListener + event)) } }",
      },
    });
    expect(await rig.text('floating')).toBe('done 6');
    const line = await rig.logged('floating', /nobody waits/);
    expect(line).toMatchObject({
      kind: 'console',
      level: 'error',
      text: expect.stringMatching(/^Uncaught \(in promise\) Error: nobody waits\n.*src\/index\.ts:2:/),
    });
  });

  it('survives a flood, stays small and says what was dropped', async () => {
    await rig.deploy(
      'flood',
      'export default { fetch() { for (let i = 0; i < 20000; i++) console.log("flood".repeat(50), i); return new Response("done") } }',
    );
    expect(await rig.text('flood')).toBe('done');
    expect(await rig.logged('flood', /log-dropped/)).toMatchObject({ text: expect.stringMatching(/^\d+ lines/) });
    const folder = join(rig.tenants, rig.tenantOf('flood'), 'logs');
    expect(readdirSync(folder).length).toBeLessThanOrEqual(2);
    expect(JSON.stringify(await rig.log('flood')).length).toBeLessThan(rig.config.runtime.logBytes * 1.2);
  });
});
