/** Queues and workflows in the sandbox of their tenant: delivery, retries, steps, sleeps, over stops and kill -9. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BINDINGS, CODE, queuesAndWorkflowsSuite, workBy } from './queues-workflows-suite.ts';
import { RuntimeRig } from './runtime-rig.ts';
import { until } from './support/until.ts';

let rig: RuntimeRig;
beforeAll(async () => {
  rig = await RuntimeRig.start();
  await rig.deploy('work', CODE, { bindings: BINDINGS });
});
afterAll(() => rig?.stop());

const POST = { method: 'POST' };
const work = workBy((path, init) => rig.fetch('work', path, init));
const { read, create, status, steps } = work;
const kill = () => process.kill(rig.pidOf('work'), 'SIGKILL');

queuesAndWorkflowsSuite(work);

describe('queues', () => {
  test('a delayed message wakes a deployment that has stopped', async () => {
    await rig.text('work', '/send/later/2', POST);
    await rig.runtime.stop('work', 'idle', { drainMs: 0 });
    expect(rig.runtime.status('work').state).toBe('cold');
    await until(() => rig.runtime.status('work').state === 'warm');
    await until(async () => (await read('jobs')).includes('later'));
  });

  test('nothing that was sent is lost by kill -9, at any moment', async () => {
    const sent: string[] = [];
    for (let round = 0; round < 3; round++) {
      let killed = false;
      const sending = (async () => {
        for (let count = 0; !killed; count++) {
          const answer = await rig.fetch('work', `/send/k${round}-${count}`, POST).catch(() => undefined);
          if (!answer?.ok) return;
          sent.push(`k${round}-${count}`);
        }
      })();
      await until(() => sent.length > 40 * (round + 1));
      kill();
      // A sender that is between two requests may not notice the kill.
      killed = true;
      await sending;
      await until(async () => (await rig.fetch('work', '/read/jobs')).ok);
    }
    const missing = async () => {
      const got = new Set(await read('jobs'));
      return sent.filter((body) => !got.has(body));
    };
    await until(async () => (await missing()).length === 0, `all of ${sent.length}`);
  });
});

describe('workflows', () => {
  test('sleep over a stop, and wake the deployment', async () => {
    await create('sleeper', { n: 1, sleep: 3_000 });
    await until(async () => (await steps('sleeper')).length === 4);
    await rig.runtime.stop('work', 'idle', { drainMs: 0 });
    await until(() => rig.runtime.status('work').state === 'warm');
    await until(async () => (await status('sleeper')).status === 'complete');
    expect((await steps('sleeper')).filter((line) => line.startsWith('first'))).toHaveLength(1);
  });

  test('go on after kill -9 with the step that was not done', async () => {
    await create('killed', { n: 1, sleep: 1_000 });
    await until(async () => (await steps('killed')).length === 4);
    kill();
    await until(async () => {
      const answer = await rig.fetch('work', '/status/killed');
      return answer.ok && ((await answer.json()) as { status: string }).status === 'complete';
    });
    expect((await steps('killed')).filter((line) => line.startsWith('first'))).toHaveLength(1);
  });

  test('a step that was cut off by kill -9 runs again soon', async () => {
    await create('cut', { n: 1, slow: 2_000 });
    await until(async () => (await steps('cut')).includes('slow cut'));
    kill();
    await until(() => rig.runtime.status('work').state === 'cold');
    // Nobody asks for it meanwhile.
    await until(() => rig.runtime.status('work').state === 'warm');
    await until(async () => (await read('steps')).includes('last cut'));
    expect((await steps('cut')).filter((line) => line === 'slow cut')).toHaveLength(2);
  });
});

test('an update under load loses no message and no step', async () => {
  const before = (await read('jobs')).length;
  let sent = 0;
  let stop = false;
  const sending = (async () => {
    while (!stop) {
      const answer = await rig.fetch('work', `/send/u${sent}`, POST);
      if (!answer.ok) throw new Error(await answer.text());
      sent++;
    }
  })();
  await rig.fetch('work', '/create/updated', { method: 'POST', body: '{"n":1,"sleep":500}' });
  for (let version = 2; version < 5; version++) {
    const reached = sent;
    await until(
      () => sent > reached + 20,
      () => `a send after ${sent}`,
    );
    await rig.deploy('work', `${CODE}// ${version}`, { bindings: BINDINGS });
    await rig.runtime.activate('work');
  }
  stop = true;
  await sending;
  await until(async () => {
    const got = new Set((await read('jobs')).slice(before));
    return Array.from({ length: sent }, (_, index) => `u${index}`).every((body) => got.has(body));
  });
  await until(
    async () => (await rig.text('work', '/status/updated')).includes('"complete"'),
    'the end of the workflow',
  );
});

test('an instance that only delivers is in use; one that does nothing is ended', async () => {
  const short = await RuntimeRig.start({ runtime: { idleMs: 700 } });
  try {
    const code = CODE.replace(
      'await book.note(batch.queue',
      'for (const end = Date.now() + 2_000; Date.now() < end; ) await scheduler.wait(100);\n      await book.note(batch.queue',
    );
    await short.deploy('work', code, { bindings: BINDINGS });
    await short.text('work', '/send/long', POST);
    await until(() => short.runtime.status('work').state === 'cold');
    expect(JSON.parse(await short.text('work', '/read/jobs'))).toEqual(['long']);
    expect(short.events.filter(({ type }) => type === 'stopped')).toHaveLength(1);
  } finally {
    await short.stop();
  }
});

test('requests are answered between the batches of a backlog', async () => {
  const own = await RuntimeRig.start();
  try {
    const code = `
let tried = 0;
export default {
  async fetch(request, env) {
    if (request.method === 'POST') await env.JOBS.sendBatch(Array.from({ length: 100 }, (_, body) => ({ body })));
    return new Response(String(tried));
  },
  queue(batch) {
    tried += batch.messages.length;
    batch.retryAll();
  },
};`;
    const consumer = { maxBatchTimeout: 0, maxRetries: 100 };
    await own.deploy('work', code, { bindings: { queues: { JOBS: { queue: 'jobs', consumer } } } });
    await own.text('work', '/', POST);
    expect(Number(await own.text('work', '/'))).toBeLessThan(100 * 101);
    await until(async () => Number(await own.text('work', '/')) === 100 * 101);
  } finally {
    await own.stop();
  }
});
