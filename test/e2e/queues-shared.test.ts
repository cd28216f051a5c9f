/** Queues between deployments of one owner: found by name, nothing acknowledged is lost, nobody else's. */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { instancePid } from './support/instance-pid.ts';

const PRODUCER = `
export default {
  async fetch(request, env) {
    const { pathname, search } = new URL(request.url);
    const text = decodeURIComponent(search.slice(1));
    try {
      if (pathname === '/batch') await env.JOBS.sendBatch([{ body: { text } }, { body: { text: text + '!' } }]);
      else if (pathname === '/large') await env.JOBS.send('x'.repeat(200_000));
      else if (pathname === '/metrics') return Response.json(await env.JOBS.metrics());
      else await env.JOBS.send({ text }, pathname === '/late' ? { delaySeconds: 600 } : undefined);
      return new Response('sent');
    } catch (error) {
      return new Response(String(error), { status: 500 });
    }
  },
};
`;
const CONSUMER = `
export default {
  async fetch(request, env) {
    return Response.json((await env.STORE.list()).keys.map(({ name }) => name));
  },
  async queue(batch, env) {
    for (const { body } of batch.messages) await env.STORE.put(batch.queue + ' ' + body.text, '');
  },
};
`;
const SENDS = { queues: { JOBS: { queue: 'jobs', shared: true } } };
const TAKES = {
  kv: true,
  queues: { jobs: { queue: 'jobs', shared: true, producer: false, consumer: { maxBatchTimeout: 0 } } },
};

let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error' } });
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'sender', code: PRODUCER, bindings: SENDS });
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

const send = async (text: string, path = '/', slug = 'sender') =>
  (await fetch(`${host.url}/${slug}${path}?${encodeURIComponent(text)}`, { method: 'POST' })).text();
const taken = async (slug = 'taker') => {
  const answer = await fetch(`${host.url}/${slug}/`);
  return answer.ok ? ((await answer.json()) as string[]) : [];
};

it('without a consumer a message is refused by name', async () => {
  expect(await send('nobody')).toMatch(/No deployment of yours has a consumer of the queue jobs/);
});

it("a message goes to the owner's consumer, which is started for it, and to nobody else's", async () => {
  await deploy(mppFetch(host.network, 1), host.url, { slug: 'stranger', code: CONSUMER, bindings: TAKES });
  expect(await send('theirs')).toMatch(/No deployment of yours/);
  await deploy(owner, host.url, { slug: 'taker', code: CONSUMER, bindings: TAKES });
  expect(await send('first')).toBe('sent');
  expect(await send('second', '/batch')).toBe('sent');
  expect(await send('late', '/late')).toBe('sent');
  await expect.poll(() => taken()).toEqual(['jobs first', 'jobs second', 'jobs second!']);
  expect(await taken('stranger')).toEqual([]);
  expect(JSON.parse(await send('', '/metrics'))).toMatchObject({ backlogCount: 1 });
  expect(await send('', '/large')).toMatch(/exceeds limit|413|too large/i);
});

it('nothing acknowledged is lost by kill -9 of the consumer or the host', async () => {
  const sent: string[] = [];
  let done = false;
  const sending = (async () => {
    for (let count = 0; !done; count++) {
      const text = `kept ${count}`;
      if ((await send(text).catch(() => '')) === 'sent') sent.push(`jobs ${text}`);
    }
  })();
  for (let round = 1; round <= 2; round++) {
    const from = sent.length;
    await expect.poll(() => sent.length).toBeGreaterThan(from + 20);
    const pid = instancePid(host.data, 'taker');
    if (round === 2) {
      await host.kill();
      host = await host.restart();
    } else if (pid !== undefined) process.kill(pid, 'SIGKILL');
  }
  done = true;
  await sending;
  await expect
    .poll(async () => {
      const got = new Set(await taken());
      return sent.filter((text) => !got.has(text)).length;
    })
    .toBe(0);
  expect(sent.length).toBeGreaterThan(40);
});

it('two consumers, and one that is gone, are named', async () => {
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'other', code: CONSUMER, bindings: TAKES });
  expect(await send('two')).toMatch(/has several consumers: other, taker/);
  expect((await owner(`${host.url}/_admin/other`, { method: 'DELETE' })).status).toBe(200);
  expect(await send('one')).toBe('sent');
  const none = await owner(`${host.url}/_admin/code/taker`, jsonPut({ bindings: { kv: true } }));
  expect(none.status).toBe(200);
  expect(await send('none')).toMatch(/No deployment of yours/);
});
