/** Twenty paid calls with a minute of audio at once on the real host: what other tenants' callers notice of it. */
import { existsSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { JUDGE_TIMES } from '../times.ts';
import { balances, deploy, type Fetch, jsonPost, mppFetch, x402Fetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const SENTENCES =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week. ';
const CALLS = 20;
/** How long the other tenant is asked: longer where its times count. */
const [WARM_UP_MS, ALONE_MS, BESIDE_MS] = JUDGE_TIMES ? [2_000, 1_500, 2_000] : [500, 500, 700];
const FIGURES = JUDGE_TIMES ? 3 : 1;
const JOBS = 1;
const WAITING = 4;
/** One payer takes half of the queue at most. */
const OF_ONE_PAYER = WAITING / 2;

interface Health {
  engines: { listen: { ok: boolean; detail?: { queue: { running: number; waiting: number } } } };
}

let host: TestHost;
let speech: string;
let listen: Fetch;
/** Calls that were admitted end with the host. */
let ending = false;

// A second try begins with an empty queue.
beforeEach(async () => {
  ending = false;
  host = await startHost({
    builtins: ['speech'],
    flags: { 'speech-listen-jobs': String(JOBS), 'speech-listen-waiting': String(WAITING), 'log-level': 'warn' },
  });
  speech = `${host.url}/speech`;
  listen = x402Fetch(host.network, 1);
  await until(
    () =>
      health().then(
        ({ ok }) => ok || undefined,
        () => undefined,
      ),
    host.output,
  );
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'other',
    code: 'export default { fetch: () => new Response("hello") }',
  });
});

afterEach(async () => {
  ending = true;
  await host?.stop();
});

/** 99th percentile of the other tenant's answers at the public port, ms. */
async function otherP99(ms: number): Promise<number> {
  const times: number[] = [];
  for (const end = performance.now() + ms; performance.now() < end; ) {
    const started = performance.now();
    const response = await fetch(`${host.url}/other/`);
    expect(await response.text()).toBe('hello');
    times.push(performance.now() - started);
  }
  return times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)] ?? Number.POSITIVE_INFINITY;
}

/** The middle one of such figures: what else happens on the machine for a moment is in one of them. */
async function typicalP99(ms: number): Promise<number> {
  const figures: number[] = [];
  for (let each = 0; each < FIGURES; each++) figures.push(await otherP99(ms));
  return figures.sort((a, b) => a - b)[FIGURES >> 1] ?? Number.POSITIVE_INFINITY;
}

async function wealth(): Promise<bigint> {
  const { mpp, x402 } = await balances(host.network, host.network.wallets[1]?.address ?? '0x');
  return mpp + x402;
}

async function health(): Promise<Health['engines']['listen']> {
  return ((await (await fetch(`${speech}/healthz`)).json()) as Health).engines.listen;
}

/** Transcriptions that run and wait. */
async function queue(): Promise<unknown> {
  return (await health()).detail?.queue;
}

it('are queued or refused uncharged, and others are served as before', async () => {
  const spoken = await mppFetch(host.network, 0)(`${speech}/v1/speak`, jsonPost({ text: SENTENCES.repeat(4) }));
  expect(spoken.status).toBe(200);
  const audio = await spoken.arrayBuffer();
  await otherP99(WARM_UP_MS);
  const before = await typicalP99(ALONE_MS);
  const held = await wealth();

  const refused: unknown[] = [];
  const others: unknown[] = [];
  const calls = Array.from({ length: CALLS }, async () => {
    const init = { method: 'POST', body: audio, headers: { 'content-type': 'audio/mpeg' } };
    try {
      const response = await listen(`${speech}/v1/listen`, init);
      const body = (await response.json()) as { err_code?: string };
      if (response.status === 429)
        refused.push({ code: body.err_code, charged: response.headers.get('x-payment-amount') });
      else others.push({ status: response.status, body });
    } catch (error) {
      if (!ending) others.push(error);
    }
  });
  await expect.poll(() => [refused.length, others]).toEqual([CALLS - JOBS - OF_ONE_PAYER, []]);
  for (const refusal of refused) expect(refusal).toEqual({ code: 'TOO_MANY_REQUESTS', charged: null });
  expect(await queue()).toMatchObject({ running: JOBS, waiting: OF_ONE_PAYER });
  const during = await typicalP99(BESIDE_MS);
  expect(await queue()).toMatchObject({ running: JOBS, waiting: OF_ONE_PAYER });

  // Nothing is taken before the work is done, and the refused are done with.
  expect(await wealth()).toBe(held);
  console.info({ p99Ms: { before, during } });

  const recognizing = () => processTree([host.pid]).filter((pid) => commandOf(pid).includes('pocketsphinx'));
  // It begins when the audio is decoded.
  await expect.poll(recognizing).toHaveLength(JOBS);
  const recognizers = recognizing();
  ending = true;
  await host.stop();
  await Promise.all(calls);
  await expect.poll(() => recognizers.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([]);
});
