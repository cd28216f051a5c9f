/** The speech tenant in workerd before Deepgram-shaped and OpenAI-shaped servers: right status, right charge. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Problem } from '../../host/shared/problem.ts';
import { type RunningEngine, type RunningTenant, startEngine, startTenant } from '../speech/harness/programs.ts';
import { toneWav } from '../speech/harness/sound.ts';
import { type Mood, startUpstream, UPSTREAM_AUDIO, type Upstream } from '../speech/harness/upstreams.ts';

/** Of the tenant before upstreams that say nothing, or too much; the other has time, however busy the machine is. */
const SHORT_TIMEOUT_MS = 1_500;
const TIMEOUT_MS = 60_000;

interface Outcome {
  status: number;
  charge: string | null;
  retryAfter: string | null;
  body: Record<string, unknown> | undefined;
  bytes: Buffer;
}

/** What each way to fail means to the caller. None of them is charged. */
const FAILURES: [Mood, number, string][] = [
  ['unauthorized', 503, 'SERVICE_UNAVAILABLE'],
  ['bad request', 400, 'INVALID_BODY'],
  ['busy', 429, 'TOO_MANY_REQUESTS'],
  ['broken', 502, 'UPSTREAM_ERROR'],
  ['silent', 504, 'TIMEOUT'],
  ['endless body', 504, 'TIMEOUT'],
  ['half body', 502, 'UPSTREAM_ERROR'],
];

for (const kind of ['deepgram', 'openai'] as const) {
  describe(`${kind} behind the tenant`, () => {
    let upstream: Upstream;
    let tenant: RunningTenant;
    let impatient: RunningTenant;

    beforeAll(async () => {
      upstream = await startUpstream();
      const bindings =
        kind === 'deepgram'
          ? { DEEPGRAM_API_KEY: 'secret-key', DEEPGRAM_BASE_URL: upstream.url }
          : { OPENAI_BASE_URL: `${upstream.url}/v1`, OPENAI_API_KEY: 'secret-key', OPENAI_CHAT_MODEL: 'small' };
      const within = (ms: number) => startTenant(undefined, { ...bindings, UPSTREAM_TIMEOUT_MS: String(ms) });
      [tenant, impatient] = await Promise.all([within(TIMEOUT_MS), within(SHORT_TIMEOUT_MS)]);
    });

    afterAll(async () => {
      await tenant?.stop();
      await impatient?.stop();
      upstream?.stop();
    });

    afterEach(() => {
      upstream.mood = 'success';
      upstream.received.length = 0;
    });

    const listen = ({ url } = tenant) => post(`${url}/v1/listen?punctuate=true&tag=a&tag=b`, toneWav(1), 'audio/wav');
    const speak = ({ url } = tenant) => post(`${url}/v1/speak`, JSON.stringify({ text: 'Hello there' }));
    const read = ({ url } = tenant) =>
      post(
        `${url}/v1/read?summarize=true&sentiment=true&topics=true&intents=true`,
        JSON.stringify({ text: '\n Please cancel my order. I want a refund.' }),
      );

    it('is sent no SSML, which it would read out', async () => {
      const { status, charge, body } = await post(`${tenant.url}/v1/speak`, '{"text":"<speak>Hello</speak>"}');
      expect([status, charge, body?.err_code]).toEqual([422, null, 'UNSUPPORTED_SSML']);
      expect(upstream.received).toEqual([]);
    });

    it('transcribes and charges by the second', async () => {
      const { status, charge, body } = await listen();
      expect(status).toBe(200);
      expect(charge).toBe(kind === 'deepgram' ? '0.002594' : '0.000847');
      expect(body).toMatchObject({ results: { channels: [{ alternatives: [{ confidence: expect.any(Number) }] }] } });
      const [call] = upstream.received;
      if (kind === 'deepgram') {
        expect(call?.headers.authorization).toBe('Token secret-key');
        expect(call?.query.getAll('tag')).toEqual(['a', 'b']);
        expect(call?.body).toEqual(Buffer.from(toneWav(1)));
      } else {
        expect(call?.headers.authorization).toBe('Bearer secret-key');
        const text = call?.body.toString('latin1') ?? '';
        expect(text).toContain('name="timestamp_granularities[]"\r\n\r\nword');
        expect(text).toContain('name="response_format"\r\n\r\nverbose_json');
        expect(text).toContain('filename="audio.wav"');
        expect(body).toMatchObject({
          results: { channels: [{ alternatives: [{ transcript: 'The beach was a popular spot.' }] }] },
        });
      }
    });

    it('speaks and charges by the character', async () => {
      const { status, charge, bytes } = await speak();
      expect([status, charge]).toEqual([200, '0.000275']);
      expect(bytes).toEqual(UPSTREAM_AUDIO);
    });

    it('reads', async () => {
      const { status, body } = await read();
      expect(status).toBe(200);
      const results = body?.results as Record<string, { average?: { sentiment: string }; text?: string }>;
      expect(results.summary?.text).toBe(kind === 'deepgram' ? 'A summary.' : 'Two orders.');
      expect(results.sentiments?.average?.sentiment).toBe('neutral');
      // in the text as it was sent
      if (kind === 'openai') expect(results.intents).toMatchObject({ segments: [{ start_offset: 2, end_offset: 25 }] });
    });

    it('waits for a slow body', async () => {
      upstream.mood = 'slow body';
      expect((await listen()).status).toBe(200);
      const spoken = await speak();
      expect(spoken.bytes).toEqual(UPSTREAM_AUDIO);
      expect(spoken.charge).toBe('0.000275');
    });

    it.each(FAILURES)('%s: %i, uncharged', async (mood, status, code) => {
      upstream.mood = mood;
      const asked = status === 504 ? impatient : tenant;
      for (const outcome of await Promise.all([listen(asked), speak(asked), read(asked)])) {
        expect(outcome.status).toBe(status);
        expect(outcome.charge).toBeNull();
        expect(outcome.body).toMatchObject({
          err_code: code,
          request_id: expect.any(String),
          err_msg: expect.any(String),
        });
        // neither the operator's account nor the upstream's insides
        expect(JSON.stringify({ ...outcome.body, request_id: 'random' })).not.toMatch(/4711|\/srv|secret/);
        if (mood === 'busy') expect(outcome.retryAfter).toBe('7');
        if (mood === 'bad request') expect(outcome.body?.err_msg).toContain('no such model/language combination');
      }
    });

    it('refuses an answer that is not what was asked for', async () => {
      upstream.mood = 'not json';
      for (const outcome of [await listen(), await read()]) {
        expect([outcome.status, outcome.charge]).toEqual([502, null]);
      }
    });

    it('refuses audio that costs more than is held, uncharged, and says what it needs', async () => {
      const outcome = await post(`${tenant.url}/v1/listen`, toneWav(1), 'audio/wav', { 'x-max-price': '0.0001' });
      expect([outcome.status, outcome.charge]).toEqual([402, null]);
      expect(outcome.body).toMatchObject({
        err_code: 'PAYMENT_LIMIT_EXCEEDED',
        needed_usd: kind === 'deepgram' ? '0.002594' : '0.000847',
        held_usd: '0.0001',
      });
    });
  });
}

describe('with the engine process beside it', () => {
  let upstream: Upstream;
  let engine: RunningEngine;
  let tenant: RunningTenant;

  beforeAll(async () => {
    upstream = await startUpstream();
    engine = await startEngine();
    tenant = await startTenant(engine, { DEEPGRAM_API_KEY: 'secret-key', DEEPGRAM_BASE_URL: upstream.url });
  });

  afterAll(async () => {
    await tenant?.stop();
    await engine?.stop();
    upstream?.stop();
  });

  it('measures audio before it is sent on: too long is refused before the upstream hears of it', async () => {
    const outcome = await post(`${tenant.url}/v1/listen`, toneWav(3), 'audio/wav', { 'x-max-price': '0.0002' });
    expect(outcome.status).toBe(402);
    expect(outcome.body).toMatchObject({ needed_usd: '0.0003', held_usd: '0.0002' });
    expect(upstream.received).toEqual([]);
  });

  it('charges what was measured, and sends on exactly what came', async () => {
    const outcome = await post(`${tenant.url}/v1/listen`, toneWav(3), 'audio/wav', { 'x-max-price': '0.0003' });
    expect([outcome.status, outcome.charge]).toEqual([200, '0.0003']);
    expect(upstream.received[0]?.body).toEqual(Buffer.from(toneWav(3)));
  });

  it('sends on nothing that it could not measure because the host has no more connections for it', async () => {
    upstream.received.length = 0;
    const problem = new Problem('egress_limit', 'too many wait');
    const answer = JSON.stringify(problem.toDocument());
    // Once it has read everything: an answer ahead of that can be lost with the connection, by the proxy of these tests.
    const crowded = createServer((request, reply) => {
      request.resume().once('end', () => reply.writeHead(problem.status).end(answer));
    });
    await once(crowded.listen(0, '127.0.0.1'), 'listening');
    const { port } = crowded.address() as AddressInfo;
    const bindings = { DEEPGRAM_API_KEY: 'secret-key', DEEPGRAM_BASE_URL: upstream.url };
    const other = await startTenant(undefined, { ...bindings, SPEECH_ENGINE_URL: `http://127.0.0.1:${port}` });
    try {
      const outcome = await post(`${other.url}/v1/listen`, toneWav(1), 'audio/wav');
      expect(outcome).toMatchObject({ status: 429, charge: null, body: { err_code: 'TOO_MANY_REQUESTS' } });
      expect(upstream.received).toEqual([]);
    } finally {
      await other.stop();
      crowded.close();
    }
  });
});

describe.each(['deepgram', 'openai'])('%s, and a caller that leaves', (kind) => {
  it('gives the place of the audio that was measured to others', async () => {
    const upstream = await startUpstream();
    const engine = await startEngine({ listen: { jobs: 1, waiting: 0 } });
    const tenant = await startTenant(
      engine,
      kind === 'deepgram'
        ? { DEEPGRAM_API_KEY: 'secret-key', DEEPGRAM_BASE_URL: upstream.url }
        : { OPENAI_BASE_URL: upstream.url },
    );
    try {
      upstream.mood = 'silent';
      const leaving = new AbortController();
      const asked = fetch(`${tenant.url}/v1/listen`, {
        method: 'POST',
        body: toneWav(1),
        headers: { 'content-type': 'audio/wav' },
        signal: leaving.signal,
      });
      asked.catch(() => {});
      await expect.poll(() => upstream.received.length).toBe(1);
      leaving.abort();
      upstream.mood = 'success';
      await expect.poll(async () => (await post(`${tenant.url}/v1/listen`, toneWav(1), 'audio/wav')).status).toBe(200);
    } finally {
      await tenant.stop();
      await engine.stop();
      upstream.stop();
    }
  });
});

describe('an OpenAI-compatible server that knows no times', () => {
  it('has its text passed on, with a warning; one that leaves the length open cannot be charged for', async () => {
    const upstream = await startUpstream();
    const tenant = await startTenant(undefined, { OPENAI_BASE_URL: upstream.url });
    try {
      upstream.mood = 'text and duration';
      const heard = await post(`${tenant.url}/v1/listen?punctuate=true`, toneWav(1), 'audio/wav');
      expect([heard.status, heard.charge]).toEqual([200, '0.000847']);
      expect(heard.body).toMatchObject({
        metadata: { warnings: [{ parameter: 'words', message: expect.stringContaining('no times') }] },
        results: { channels: [{ alternatives: [{ transcript: 'The beach was a popular spot.' }] }] },
      });
      upstream.mood = 'text alone';
      const unmeasured = await post(`${tenant.url}/v1/listen`, toneWav(1), 'audio/wav');
      expect([unmeasured.status, unmeasured.charge]).toEqual([502, null]);
    } finally {
      await tenant.stop();
      upstream.stop();
    }
  });
});

async function post(
  url: string,
  body: string | Uint8Array<ArrayBuffer>,
  type = 'application/json',
  headers: Record<string, string> = {},
): Promise<Outcome> {
  const response = await fetch(url, { method: 'POST', body, headers: { 'content-type': type, ...headers } });
  const bytes = Buffer.from(await response.arrayBuffer());
  const json = response.headers.get('content-type')?.includes('json');
  return {
    status: response.status,
    charge: response.headers.get('x-charge'),
    retryAfter: response.headers.get('retry-after'),
    body: json ? (JSON.parse(bytes.toString()) as Record<string, unknown>) : undefined,
    bytes,
  };
}
