/** Everything that is expected of queues and workflows, wherever their objects are and whichever node is asked. */
import { describe, expect, test } from 'vitest';
import { until } from './support/until.ts';

export const CODE = `
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
export const BINDINGS = {
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

const POST = { method: 'POST' };

export interface Work {
  text(path: string, init?: RequestInit): Promise<string>;
  read(list: string): Promise<string[]>;
  create(id: string, params: object): Promise<unknown>;
  status(id: string): Promise<{ status: string; output: unknown }>;
  steps(id: string): Promise<string[]>;
}

/** @param fetch asks the deployment of CODE */
export function workBy(fetch: (path: string, init?: RequestInit) => Promise<Response>): Work {
  const text = async (path: string, init?: RequestInit) => (await fetch(path, init)).text();
  const read = async (list: string) => JSON.parse(await text(`/read/${list}`)) as string[];
  return {
    text,
    read,
    create: async (id, params) => JSON.parse(await text(`/create/${id}`, { ...POST, body: JSON.stringify(params) })),
    status: async (id) => JSON.parse(await text(`/status/${id}`)),
    steps: async (id) => (await read('steps')).filter((line) => line.endsWith(` ${id}`)),
  };
}

export function queuesAndWorkflowsSuite({ text, read, create, status, steps }: Work): void {
  describe('queues', () => {
    test('deliver every kind of body, in batches', async () => {
      expect(await text('/kinds', POST)).toBe('sent');
      const all = ['{"a":1}', 'text', 'bytes 1,2', 'map 1,2', 'b1', 'b2'];
      await until(async () => (await read('jobs')).length >= all.length);
      expect((await read('jobs')).sort()).toEqual(all.sort());
    });

    test('what fails is tried again, and then goes to the dead letters', async () => {
      await text('/send/bad', POST);
      await until(async () => (await read('dead')).length > 0);
      expect((await read('jobs')).filter((body) => body.startsWith('bad'))).toEqual(['bad 1', 'bad 2', 'bad 3']);
      expect(await read('dead')).toEqual(['bad 1']);
    });
  });

  describe('workflows', () => {
    test('run their steps once each, and those that fail again', async () => {
      expect(await create('one', { n: 21 })).toEqual({ id: 'one' });
      await until(async () => (await status('one')).status === 'complete');
      expect((await status('one')).output).toMatchObject({ first: 42 });
      expect(await steps('one')).toEqual(['first one', 'flaky one', 'flaky one', 'flaky one', 'last one']);
    });

    test('wait for events, pause, resume, end and start again', async () => {
      await create('waits', { n: 1, wait: true });
      await until(async () => (await status('waits')).status === 'waiting');
      await text('/event/waits', POST);
      await until(async () => (await status('waits')).status === 'complete');
      expect((await status('waits')).output).toMatchObject({ heard: 'heard you' });

      await create('handled', { n: 1, wait: true });
      await until(async () => (await status('handled')).status === 'waiting');
      await text('/act/handled/pause', POST);
      await until(async () => (await status('handled')).status === 'paused');
      await text('/act/handled/resume', POST);
      await until(async () => (await status('handled')).status === 'waiting');
      await text('/act/handled/terminate', POST);
      await until(async () => (await status('handled')).status === 'terminated');
      await text('/act/handled/restart', POST);
      await until(async () => ['running', 'waiting'].includes((await status('handled')).status));
    });
  });
}
