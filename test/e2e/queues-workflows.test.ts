/** Queues and workflows in the sandbox of their tenant: delivery, retries, steps, sleeps, over stops and kill -9. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RuntimeRig, until } from './runtime-rig.ts';

const CODE = `
import { DurableObject, WorkflowEntrypoint } from 'cloudflare:workers';
export class Book extends DurableObject {
  async note(list, value) {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS notes (list TEXT, value TEXT)');
    this.ctx.storage.sql.exec('INSERT INTO notes VALUES (?, ?)', list, value);
  }
  async read(list) {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS notes (list TEXT, value TEXT)');
    return this.ctx.storage.sql.exec('SELECT value FROM notes WHERE list = ? ORDER BY rowid', list).toArray().map(({ value }) => value);
  }
}
const show = (body) => body instanceof ArrayBuffer ? 'bytes ' + new Uint8Array(body).join() : typeof body === 'string' ? body : body instanceof Map ? 'map ' + [...body] : JSON.stringify(body);
export class Flow extends WorkflowEntrypoint {
  async run(event, step) {
    const book = this.env.BOOKS.getByName('book');
    const first = await step.do('first', async () => { await book.note('steps', 'first ' + event.instanceId); return event.payload.n * 2; });
    await step.do('flaky', { retries: { limit: 3, delay: 100, backoff: 'constant' } }, async () => {
      await book.note('steps', 'flaky ' + event.instanceId);
      const tries = await book.read('steps');
      if (tries.filter((line) => line === 'flaky ' + event.instanceId).length < 3) throw new Error('not yet');
    });
    if (event.payload.slow) await step.do('slow', async () => { await book.note('steps', 'slow ' + event.instanceId); await scheduler.wait(event.payload.slow); });
    await step.sleep('rest', event.payload.sleep ?? 100);
    const heard = event.payload.wait ? await step.waitForEvent('wait', { type: 'go', timeout: '1 minute' }) : undefined;
    return step.do('last', async () => { await book.note('steps', 'last ' + event.instanceId); return { first, heard: heard?.payload }; });
  }
}
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const [, what, ...args] = url.pathname.split('/');
    const book = env.BOOKS.getByName('book');
    try {
      switch (what) {
        case 'read': return Response.json(await book.read(args[0]));
        case 'send': await env.JOBS.send(args[0], args[1] ? { delaySeconds: Number(args[1]) } : undefined); return new Response('sent');
        case 'kinds':
          await env.JOBS.send({ a: 1 });
          await env.JOBS.send('text', { contentType: 'text' });
          await env.JOBS.send(new Uint8Array([1, 2]), { contentType: 'bytes' });
          await env.JOBS.send(new Map([[1, 2]]), { contentType: 'v8' });
          await env.JOBS.sendBatch([{ body: 'b1' }, { body: 'b2' }]);
          return new Response('sent');
        case 'create': return Response.json({ id: (await env.FLOWS.create({ id: args[0], params: await request.json() })).id });
        case 'status': return Response.json(await (await env.FLOWS.get(args[0])).status());
        case 'event': await (await env.FLOWS.get(args[0])).sendEvent({ type: 'go', payload: 'heard you' }); return new Response('sent');
        case 'act': await (await env.FLOWS.get(args[0]))[args[1]](); return new Response('done');
      }
    } catch (error) { return new Response(String(error), { status: 500 }); }
  },
  async queue(batch, env) {
    const book = env.BOOKS.getByName('book');
    for (const message of batch.messages) {
      await book.note(batch.queue, show(message.body) + (message.body === 'bad' ? ' ' + message.attempts : ''));
      if (message.body === 'bad' && batch.queue === 'jobs') message.retry();
      else message.ack();
    }
  },
};
`;
const BINDINGS = {
  durableObjects: { BOOKS: { class: 'Book' } },
  queues: {
    JOBS: {
      queue: 'jobs',
      consumer: { maxBatchSize: 4, maxBatchTimeout: 0.2, maxRetries: 2, deadLetterQueue: 'dead' },
    },
    consumer_dead: { queue: 'dead', producer: false, consumer: { maxBatchTimeout: 0 } },
  },
  workflows: { FLOWS: { class: 'Flow', name: 'flow' } },
};

let rig: RuntimeRig;
beforeAll(async () => {
  rig = await RuntimeRig.start();
  await rig.deploy('work', CODE, { bindings: BINDINGS });
}, 60_000);
afterAll(() => rig?.stop());

const POST = { method: 'POST' };
const read = async (list: string) => JSON.parse(await rig.text('work', `/read/${list}`)) as string[];
const kill = () => process.kill(rig.pidOf('work'), 'SIGKILL');

describe('queues', () => {
  test('deliver every kind of body, in batches', async () => {
    expect(await rig.text('work', '/kinds', POST)).toBe('sent');
    const all = ['{"a":1}', 'text', 'bytes 1,2', 'map 1,2', 'b1', 'b2'];
    await until(async () => (await read('jobs')).length >= all.length);
    expect((await read('jobs')).sort()).toEqual(all.sort());
  });

  test('what fails is tried again, and then goes to the dead letters', async () => {
    await rig.text('work', '/send/bad', POST);
    await until(async () => (await read('dead')).length > 0);
    expect((await read('jobs')).filter((body) => body.startsWith('bad'))).toEqual(['bad 1', 'bad 2', 'bad 3']);
    expect(await read('dead')).toEqual(['bad 1']);
  });

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
      await until(async () => (await rig.fetch('work', '/read/jobs')).ok, 20_000);
    }
    const missing = async () => {
      const got = new Set(await read('jobs'));
      return sent.filter((body) => !got.has(body));
    };
    await until(async () => (await missing()).length === 0, 20_000, `all of ${sent.length}`);
  });
});

describe('workflows', () => {
  const create = async (id: string, params: object) =>
    (await rig.fetch('work', `/create/${id}`, { method: 'POST', body: JSON.stringify(params) })).json();
  const status = async (id: string) =>
    JSON.parse(await rig.text('work', `/status/${id}`)) as { status: string; output: unknown };
  const steps = async (id: string) => (await read('steps')).filter((line) => line.endsWith(` ${id}`));

  test('run their steps once each, and those that fail again', async () => {
    expect(await create('one', { n: 21 })).toEqual({ id: 'one' });
    await until(async () => (await status('one')).status === 'complete');
    expect((await status('one')).output).toMatchObject({ first: 42 });
    expect(await steps('one')).toEqual(['first one', 'flaky one', 'flaky one', 'flaky one', 'last one']);
  });

  test('sleep over a stop, and wake the deployment', async () => {
    await create('sleeper', { n: 1, sleep: 3_000 });
    await until(async () => (await steps('sleeper')).length === 4);
    await rig.runtime.stop('work', 'idle', { drainMs: 0 });
    await until(() => rig.runtime.status('work').state === 'warm', 15_000);
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
    }, 30_000);
    expect((await steps('killed')).filter((line) => line.startsWith('first'))).toHaveLength(1);
  });

  test('a step that was cut off by kill -9 runs again soon', async () => {
    await create('cut', { n: 1, slow: 2_000 });
    await until(async () => (await steps('cut')).includes('slow cut'));
    kill();
    await until(() => rig.runtime.status('work').state === 'cold');
    // Nobody asks for it meanwhile.
    await until(() => rig.runtime.status('work').state === 'warm', 20_000);
    await until(async () => (await read('steps')).includes('last cut'), 20_000);
    expect((await steps('cut')).filter((line) => line === 'slow cut')).toHaveLength(2);
  });

  test('wait for events, pause, resume, end and start again', async () => {
    await create('waits', { n: 1, wait: true });
    await until(async () => (await status('waits')).status === 'waiting');
    await rig.text('work', '/event/waits', POST);
    await until(async () => (await status('waits')).status === 'complete');
    expect((await status('waits')).output).toMatchObject({ heard: 'heard you' });

    await create('handled', { n: 1, wait: true });
    await until(async () => (await status('handled')).status === 'waiting');
    await rig.text('work', '/act/handled/pause', POST);
    await until(async () => (await status('handled')).status === 'paused');
    await rig.text('work', '/act/handled/resume', POST);
    await until(async () => (await status('handled')).status === 'waiting');
    await rig.text('work', '/act/handled/terminate', POST);
    await until(async () => (await status('handled')).status === 'terminated');
    await rig.text('work', '/act/handled/restart', POST);
    await until(async () => ['running', 'waiting'].includes((await status('handled')).status));
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
      10_000,
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
  }, 20_000);
  await until(
    async () => (await rig.text('work', '/status/updated')).includes('"complete"'),
    10_000,
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
