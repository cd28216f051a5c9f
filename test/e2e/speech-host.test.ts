/** The speech tenant on the real host, with the embedded engine, paid by stock clients through the stock Deepgram SDK. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DeepgramClient, DeepgramError } from '@deepgram/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadNetworkKeys } from '../../host/payments/network/keys.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';
import { acceptedErrors, wordErrorRate } from '../speech/harness/word-errors.ts';
import { account, balances, deploy, type Fetch, jsonPost, mppFetch, x402Fetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { lookAt, newPage, openBrowser, patientPage } from './support/page-browser.ts';
import { until } from './support/until.ts';

const PARAGRAPH =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week.';
/** pocketsphinx takes about as long as it takes to say it. */
const SENTENCE = 'The weather was warm this morning, and many people went to the park to enjoy the sun.';

/** Pays for what is done on the page, and for nothing else. */
const DEMO_WALLET = 4;

let engine: RunningEngine;
let host: TestHost;
let mpp: Fetch;
let x402: Fetch;
let speech: string;

/** Starts a host that is new, but whose demo wallet is known: its wallets are made before. */
async function startSpeechHost(engine: RunningEngine): Promise<TestHost> {
  const data = await mkdtemp(join(tmpdir(), 'tp-'));
  const { wallets } = await loadNetworkKeys(data);
  const secrets = { PAY_NETWORK: 'local', DEMO_WALLET_KEY: wallets[DEMO_WALLET]?.privateKey };
  const host = await startHost({
    data,
    builtins: ['speech'],
    flags: {
      'runtime-egress-allow': JSON.stringify({ speech: [`unix:${engine.socket}`] }),
      'builtin-tenants-secrets': JSON.stringify({ speech: secrets }),
    },
  });
  // built-in tenants are deployed while the host already serves
  await until(async () => ((await fetch(`${host.url}/speech/healthz`)).ok ? true : undefined), host.output);
  return {
    ...host,
    async stop() {
      await host.stop();
      await rm(data, { recursive: true, force: true });
    },
  };
}

/** What the wallet holds, in micro-USD over both tokens. */
async function wealth(wallet: number, { network } = host): Promise<bigint> {
  const { mpp, x402 } = await balances(network, account(network, wallet).address);
  return mpp + x402;
}

/** The voice that speaks English here. */
async function voice(): Promise<string> {
  const { engines } = (await (await fetch(`${speech}/healthz`)).json()) as {
    engines: { speak: { detail: { engines: string[] } } };
  };
  return engines.speak.detail.engines.includes('flite') ? 'flite' : 'espeak-ng';
}

/** The price is taken and the rest of it given back: at the end exactly `charge` (micro-USD) is gone. */
async function expectCharged(before: bigint, charge: number, wallet = 0, on = host): Promise<void> {
  await expect.poll(() => wealth(wallet, on)).toBe(before - BigInt(charge));
}

/** At 100 micro-USD a second, a started micro-USD is charged. */
function priceOf(seconds: number): number {
  return Math.ceil(Math.round(seconds * 1000) / 10);
}

beforeAll(async () => {
  engine = await startEngine();
  host = await startSpeechHost(engine);
  mpp = mppFetch(host.network, 0);
  x402 = x402Fetch(host.network, 1);
  speech = `http://localhost:${host.port}/speech`;
});

afterAll(async () => {
  await host?.stop();
  await engine?.stop();
});

describe('paid through the stock SDK', () => {
  it('speaks a sentence, transcribes it from a served URL, and reads it; each charged exactly', async () => {
    const deepgram = new DeepgramClient({
      auth: false,
      baseUrl: speech,
      fetch: mpp as typeof fetch,
      timeoutInSeconds: 250,
    });
    let before = await wealth(0);
    const spoken = await deepgram.speak.v1.audio.generate({ text: SENTENCE });
    const audio = Buffer.from(await spoken.arrayBuffer());
    await expectCharged(before, SENTENCE.length * 25);

    await deploy(mppFetch(host.network, 2), host.url, {
      slug: 'files',
      code: `const audio = Uint8Array.from(atob(${JSON.stringify(audio.toString('base64'))}), (c) => c.charCodeAt(0));
export default { fetch: () => new Response(audio, { headers: { 'content-type': 'audio/mpeg' } }) };`,
    });
    before = await wealth(0);
    const heard = await deepgram.listen.v1.media.transcribeUrl({
      url: `http://localhost:${host.port}/files/talk.mp3`,
      utterances: true,
      keyterm: ['park', 'river'],
    });
    if (!('results' in heard)) throw new Error('expected a transcript');
    const alternative = heard.results.channels[0]?.alternatives?.[0];
    expect(wordErrorRate(SENTENCE, alternative?.transcript ?? '')).toBeLessThanOrEqual(acceptedErrors(await voice()));
    expect(alternative?.words?.every(({ start = 0, end = 0, confidence = -1 }) => end > start && confidence >= 0)).toBe(
      true,
    );
    await expectCharged(before, priceOf(heard.metadata.duration));

    before = await wealth(0);
    const read = await deepgram.read.v1.text.analyze({
      body: { text: PARAGRAPH },
      summarize: 'v2',
      topics: true,
      sentiment: true,
    });
    const results = read.results as unknown as {
      summary: { text: string };
      topics: { segments: unknown[] };
      sentiments: { average: { sentiment_score: number } };
    };
    expect(PARAGRAPH).toContain(results.summary.text.split('. ')[0]);
    expect(results.topics.segments.length).toBeGreaterThan(0);
    expect(results.sentiments.average.sentiment_score).toBeGreaterThan(0);
    await expectCharged(before, 5000);
  });

  it('takes a binary body, paid by x402', async () => {
    const start = await wealth(1);
    const speak = await x402(
      `${speech}/v1/speak?encoding=linear16&sample_rate=16000`,
      jsonPost({ text: 'Good morning.' }),
    );
    expect(speak.status).toBe(200);
    expect(speak.headers.get('x-payment-amount')).toBe('0.000325');
    const audio = await speak.arrayBuffer();
    await expectCharged(start, 325, 1);
    const before = await wealth(1);
    const response = await x402(`${speech}/v1/listen`, {
      method: 'POST',
      body: audio,
      headers: { 'content-type': 'audio/wav' },
    });
    expect(response.status).toBe(200);
    const { metadata } = (await response.json()) as { metadata: { duration: number } };
    const charge = priceOf(metadata.duration);
    expect(response.headers.get('x-payment-amount')).toBe((charge / 1e6).toFixed(6).replace(/0{1,4}$/, ''));
    await expectCharged(before, charge, 1);
  });

  it('charges nothing for refusals, and the SDK says which', async () => {
    const deepgram = new DeepgramClient({
      auth: false,
      baseUrl: speech,
      fetch: mpp as typeof fetch,
      maxRetries: 0,
      timeoutInSeconds: 300,
    });
    const before = await wealth(0);
    const refusals = await Promise.all([
      deepgram.speak.v1.audio.generate({ text: 'x'.repeat(2001) }).catch((error: unknown) => error),
      deepgram.speak.v1.audio
        .generate({ text: '<speak><audio src="/a.wav"/></speak>' })
        .catch((error: unknown) => error),
      deepgram.listen.v1.media.transcribeUrl({ url: 'http://169.254.169.254/latest' }).catch((error: unknown) => error),
      deepgram.listen.v1.media.transcribeFile(Buffer.from('#EXTM3U\n'), {}).catch((error: unknown) => error),
      deepgram.read.v1.text.analyze({ body: { text: 'Some text.' } }).catch((error: unknown) => error),
    ]);
    const seen = refusals.map((error) => (error instanceof DeepgramError ? error.statusCode : error));
    expect(seen).toEqual([413, 422, 400, 400, 400]);
    const [, , remote] = refusals as DeepgramError[];
    expect(remote?.body).toMatchObject({ err_code: 'REMOTE_CONTENT_ERROR', request_id: expect.any(String) });
    await expectCharged(before, 0);
    // markup costs nothing
    await (
      await deepgram.speak.v1.audio.generate({ text: '<speak>Good <break time="1s"/> day.</speak>' })
    ).arrayBuffer();
    await expectCharged(before, 'Goodday.'.length * 25);
  });

  it('charges a retry with the same Idempotency-Key once, and answers the same', async () => {
    const call = jsonPost({ text: 'Say it once.' }, { 'idempotency-key': 'retry-1', accept: 'application/json' });
    const before = await wealth(0);
    const first = await (await mpp(`${speech}/v1/speak`, call)).text();
    const second = await (await mpp(`${speech}/v1/speak`, call)).text();
    expect(second).toBe(first);
    await expectCharged(before, 'Say it once.'.length * 25);
  });
});

describe('free pages', () => {
  it('describe what is sold', async () => {
    const paywrap = (await (await fetch(`${speech}/.well-known/paywrap.json`)).json()) as {
      service: string;
      paidRoutes: Record<string, unknown>[];
    };
    expect(paywrap.service).toBe('speech');
    expect(paywrap.paidRoutes).toContainEqual(
      expect.objectContaining({
        method: 'POST',
        path: '/v1/read',
        protocol: 'mpp',
        sku: 'speech-read:v1',
        priceUsdcMicro: 5000,
        pricingVersion: 1,
      }),
    );
    const health = (await (await fetch(`${speech}/healthz`)).json()) as { status: string; engines: object };
    expect(health).toMatchObject({
      status: 'ok',
      engines: {
        listen: { ok: true, warning: expect.stringContaining('turnpike speech models') },
        speak: { ok: true },
        read: { ok: true },
      },
    });
    // Before anybody pays.
    expect(await (await fetch(`${speech}/`)).text()).toContain('Only pocketsphinx transcribes here');
    for (const page of ['/', '/docs', '/llms.txt', '/openapi.json'])
      expect((await fetch(speech + page)).status, page).toBe(200);
    expect(await (await fetch(`${speech}/llms.txt`)).text()).toContain(`${speech}/v1/listen`);
  });
});

describe('callbacks', () => {
  it('are delivered to another tenant of this host, and stay until they are', async () => {
    const owner = mppFetch(host.network, 3);
    // refuses the first delivery
    await deploy(owner, host.url, {
      slug: 'inbox',
      bindings: { kv: true },
      code: `export default { async fetch(request, env) {
  if (request.method === 'GET') return Response.json(JSON.parse(await env.STORE.get('seen') ?? '[]'));
  const seen = JSON.parse(await env.STORE.get('seen') ?? '[]');
  seen.push({ method: request.method, id: request.headers.get('dg-request-id'), body: await request.json() });
  await env.STORE.put('seen', JSON.stringify(seen));
  return new Response(null, { status: seen.length === 1 ? 503 : 204 });
} }`,
    });
    const deepgram = new DeepgramClient({
      auth: false,
      baseUrl: speech,
      fetch: mpp as typeof fetch,
      timeoutInSeconds: 300,
    });
    const before = await wealth(0);
    const accepted = await deepgram.read.v1.text.analyze({
      body: { text: PARAGRAPH },
      summarize: 'v2',
      tag: ['a', 'b'],
      callback: `http://localhost:${host.port}/inbox`,
      callback_method: 'PUT',
    });
    const { request_id: id } = accepted as unknown as { request_id: string };
    expect(accepted).toEqual({ request_id: expect.any(String) });
    const seen = await until(async () => {
      const deliveries = (await (await fetch(`${host.url}/inbox`)).json()) as unknown[];
      return deliveries.length >= 2 ? deliveries : undefined;
    });
    const delivery = {
      method: 'PUT',
      id,
      body: { metadata: expect.objectContaining({ request_id: id, tags: ['a', 'b'] }), results: expect.any(Object) },
    };
    expect(seen).toEqual([delivery, delivery]);
    await expectCharged(before, 5000);
  });
});

describe('the page', () => {
  it('speaks, reads and shows the cost, paid from the demo wallet, in a real browser', async () => {
    const browser = await openBrowser();
    try {
      const page = await patientPage(browser);
      const complaints: string[] = [];
      page.on('pageerror', (error) => complaints.push(error.message));
      page.on('console', (message) => {
        // the browser writes down every 402, and those are meant
        if (message.type() === 'error' && !message.text().includes('402')) complaints.push(message.text());
      });
      const before = await wealth(DEMO_WALLET);
      await page.goto(`http://localhost:${host.port}/speech/`);
      await page.getByLabel('Text').fill('Hello from the page.');
      await page.getByRole('button', { name: 'Speak' }).click();
      const shown = () => page.locator('#cost, #answer').allTextContents();
      await expect.poll(shown).toContain('Cost: 0.0005 USDC of play money.');
      const audio = page.locator('audio');
      await expect
        .poll(() => audio.evaluate((element) => 'duration' in element && element.duration))
        .toBeGreaterThan(0.5);
      await page.getByRole('button', { name: 'Read' }).click();
      await expect.poll(shown).toContain('Cost: 0.005 USDC of play money.');
      expect(await page.locator('#answer').textContent()).toContain('"sentiments"');
      await expectCharged(before, 5500, DEMO_WALLET);

      // What was spoken is heard again, by a socket, as it comes.
      const spoken = await x402(`${speech}/v1/speak`, jsonPost({ text: 'The weather was warm this morning.' }));
      const paid = await wealth(DEMO_WALLET);
      await page
        .getByLabel('File')
        .setInputFiles({ name: 'hello.mp3', mimeType: 'audio/mpeg', buffer: Buffer.from(await spoken.arrayBuffer()) });
      await expect
        .poll(() => page.locator('#listen-price').textContent())
        .toMatch(/^Ready: \d\.\d s\. It costs 0\.0\d+ USDC/);
      await page.getByRole('button', { name: 'Transcribe as it comes' }).click();
      await expect.poll(() => page.locator('#cost').textContent()).toMatch(/^Cost: 0\.\d+ USDC of play money\.$/);
      const transcript = page.getByRole('log', { name: 'In words' });
      expect(await transcript.locator('dt').first().textContent()).toMatch(/^0:0\d\.\d to 0:0\d\.\d$/);
      expect(await transcript.locator('dd').first().textContent()).toMatch(/\w/);
      const charge = Number(/0\.\d+/.exec((await page.locator('#cost').textContent()) ?? '')?.[0]);
      expect(charge).toBeGreaterThan(0);
      await expectCharged(paid, Math.round(charge * 1_000_000), DEMO_WALLET);
      expect(await page.evaluate('document.cookie')).toBe('');
      expect(complaints).toEqual([]);
    } finally {
      await browser.close();
    }
  });

  it('records what the microphone hears, shows the price, and transcribes it', async () => {
    const wav = `${speech}/v1/speak?encoding=linear16&container=wav`;
    const spoken = await x402(wav, jsonPost({ text: 'Good morning. The weather was warm this morning.' }));
    const folder = await mkdtemp(join(tmpdir(), 'tp-microphone-'));
    const file = join(folder, 'spoken.wav');
    await writeFile(file, Buffer.from(await spoken.arrayBuffer()));
    const browser = await openBrowser([
      '--use-fake-ui-for-media-stream',
      '--use-fake-device-for-media-stream',
      `--use-file-for-fake-audio-capture=${file}%noloop`,
    ]);
    try {
      const { page, complaints } = await newPage(await browser.newContext());
      const before = await wealth(DEMO_WALLET);
      await page.goto(`http://localhost:${host.port}/speech/`);
      const price = () => page.locator('#listen-price').textContent();
      await page.getByRole('button', { name: 'Record' }).click();
      await expect.poll(price).toMatch(/^Recording … ([4-9]|\d\d) s$/);
      await page.getByRole('button', { name: 'Stop' }).click();
      await expect.poll(price).toMatch(/^Ready: \d\.\d s\. It costs 0\.0\d+ USDC/);
      await page.getByRole('button', { name: 'Transcribe', exact: true }).click();
      await expect.poll(() => page.locator('#cost').textContent()).toMatch(/^Cost: 0\.\d+ USDC/);
      expect(await page.locator('#answer').textContent()).toMatch(/morning/i);
      const charge = Number(/0\.\d+/.exec((await page.locator('#cost').textContent()) ?? '')?.[0]);
      await expectCharged(before, Math.round(charge * 1_000_000), DEMO_WALLET);
      expect(complaints).toEqual([]);
    } finally {
      await browser.close();
      await rm(folder, { recursive: true });
    }
  });

  it.each(['/speech/', '/speech/docs'])('%s: on every screen, in both schemes, for everybody', async (target) => {
    const browser = await openBrowser();
    try {
      const opened = await newPage(await browser.newContext());
      await opened.page.goto(`http://localhost:${host.port}${target}`);
      await lookAt(opened, target.replaceAll('/', ''));
    } finally {
      await browser.close();
    }
  });
});

describe('without any transcription engine', () => {
  it('answers 503 that names the fix, uncharged; speaking goes on', async () => {
    const deaf = await startEngine({ listen: { engine: 'none' } });
    const other = await startSpeechHost(deaf);
    try {
      const pay = mppFetch(other.network, 0);
      const url = `http://localhost:${other.port}/speech`;
      const before = await wealth(0, other);
      const spoken = await pay(`${url}/v1/speak`, jsonPost({ text: 'Hello.' }));
      expect(spoken.status).toBe(200);
      const body = await spoken.arrayBuffer();
      const response = await pay(`${url}/v1/listen`, {
        method: 'POST',
        body,
        headers: { 'content-type': 'audio/mpeg' },
      });
      expect(response.status).toBe(503);
      expect(await response.json()).toMatchObject({
        err_code: 'SERVICE_UNAVAILABLE',
        err_msg: expect.stringContaining('pocketsphinx'),
      });
      await expectCharged(before, 'Hello.'.length * 25, 0, other);
    } finally {
      await other.stop();
      await deaf.stop();
    }
  });
});
