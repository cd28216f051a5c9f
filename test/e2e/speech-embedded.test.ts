/** The speech tenant in workerd with the embedded engine, called by the stock Deepgram SDK; no payment in between. */

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DeepgramClient } from '@deepgram/sdk';
import { parseBuffer } from 'music-metadata';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunningEngine, type RunningTenant, startEngine, startTenant } from '../speech/harness/programs.ts';
import { acceptedErrors, wordErrorRate } from '../speech/harness/word-errors.ts';
import { expectTime } from '../times.ts';

const PARAGRAPH =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week.';

describe('speak, listen and read with the embedded engine', () => {
  let engine: RunningEngine;
  let tenant: RunningTenant;
  let files: Server;
  let deepgram: DeepgramClient;
  let audio: Uint8Array;
  let voice: string;

  beforeAll(async () => {
    engine = await startEngine();
    tenant = await startTenant(engine);
    deepgram = new DeepgramClient({ auth: false, baseUrl: tenant.url, timeoutInSeconds: 300 });
    files = createServer((request, response) => {
      if (request.url === '/talk.mp3') response.writeHead(200, { 'content-type': 'audio/mpeg' }).end(audio);
      else response.writeHead(404).end();
    }).listen(0, '127.0.0.1');
    await once(files, 'listening');
  });

  afterAll(async () => {
    files?.close();
    await tenant?.stop();
    await engine?.stop();
  });

  it('speaks MP3 that an ordinary reader accepts', async () => {
    // the first call opens connections
    await fetch(`${tenant.url}/v1/speak`, {
      method: 'POST',
      body: '{"text":"warm"}',
      headers: { 'content-type': 'application/json' },
    }).then((response) => response.arrayBuffer());
    const started = performance.now();
    const response = await fetch(`${tenant.url}/v1/speak`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ text: PARAGRAPH }),
    });
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    const chunks = [(await reader.read()).value as Uint8Array];
    const firstByteMs = performance.now() - started;
    for (let next = await reader.read(); !next.done; next = await reader.read()) chunks.push(next.value);
    audio = Buffer.concat(chunks);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('audio/mpeg');
    expect(response.headers.get('dg-char-count')).toBe(String(PARAGRAPH.length));
    expect(response.headers.get('x-charge')).toBe('0.008525');
    const { format } = await parseBuffer(audio, 'audio/mpeg', { duration: true });
    expect(format.codec).toMatch(/MPEG.*Layer 3/);
    expect(format.duration).toBeGreaterThan(15);
    voice = response.headers.get('dg-model-name') ?? '';
    console.info({ voice, firstByteMs: Math.round(firstByteMs), seconds: format.duration });
    expectTime('the first byte of speech', firstByteMs, 300);
  });

  it('does what SSML says, for the characters that are spoken', async () => {
    const query = 'encoding=linear16&container=none&sample_rate=16000&model=espeak-ng-en';
    const speak = async (text: string) => {
      const headers = { 'content-type': 'text/plain' };
      const response = await fetch(`${tenant.url}/v1/speak?${query}`, { method: 'POST', headers, body: text });
      const seconds = (await response.arrayBuffer()).byteLength / 32_000;
      return { status: response.status, seconds, count: response.headers.get('dg-char-count') };
    };
    const plain = await speak('The children played with a ball. Their parents talked.');
    const [first, second] = ['The children played with a ball.', 'Their parents talked.'];
    const paused = await speak(`<speak>${first}<break time="2s"/>${second}</speak>`);
    expect(paused).toMatchObject({ status: 200, count: String(first.length + second.length) });
    expect(paused.seconds - plain.seconds).toBeGreaterThan(1.5);
    expect(paused.seconds - plain.seconds).toBeLessThan(2.5);
    const slow = await speak(`<speak><prosody rate="x-slow">${first}</prosody></speak>`);
    expect(slow.seconds / (await speak(`<speak>${first}</speak>`)).seconds).toBeGreaterThan(1.2);
    const quick = await speak('<speak><s>One.</s><s>Two.</s></speak>');
    expect(quick).toMatchObject({ status: 200, count: '8' });
  });

  it('makes MP3 that ffprobe reads to its end', () => {
    const { status, stdout, stderr } = spawnSync(
      'ffprobe',
      [
        '-v',
        'error',
        '-count_packets',
        '-of',
        'json',
        '-show_entries',
        'stream=codec_name,nb_read_packets:format=format_name',
        '-',
      ],
      { input: audio, encoding: 'utf8' },
    );
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const { streams, format } = JSON.parse(stdout) as {
      streams: { codec_name: string; nb_read_packets: string }[];
      format: { format_name: string };
    };
    expect(format.format_name).toBe('mp3');
    expect(streams).toEqual([expect.objectContaining({ codec_name: 'mp3' })]);
    // A frame of MPEG-2 at 24 kHz or less is 24 ms or more.
    expect(Number(streams[0]?.nb_read_packets)).toBeGreaterThan(15 / 0.048);
  });

  it('transcribes it from a URL through the SDK, with times and confidence', async () => {
    const { port } = files.address() as AddressInfo;
    const heard = await deepgram.listen.v1.media.transcribeUrl({
      url: `http://127.0.0.1:${port}/talk.mp3`,
      utterances: true,
      tag: ['one', 'two'],
      diarize: true,
      keyterm: ['park', 'river'],
      search: 'sun',
      replace: 'park:garden of the town',
    });
    if (!('results' in heard)) throw new Error('expected a transcript');
    const [alternative] = heard.results.channels[0]?.alternatives ?? [];
    const errors = wordErrorRate(PARAGRAPH, (alternative?.transcript ?? '').replaceAll('garden of the town', 'park'));
    console.info({ voice, wordErrorRate: errors });
    expect(errors).toBeLessThanOrEqual(acceptedErrors(voice));
    const words = alternative?.words ?? [];
    expect(words.length).toBeGreaterThan(50);
    for (const word of words) {
      expect(word.end).toBeGreaterThan(word.start ?? 0);
      expect(word.confidence).toBeGreaterThanOrEqual(0);
      expect(word.confidence).toBeLessThanOrEqual(1);
    }
    expect(heard.results.utterances?.length).toBeGreaterThan(0);
    expect(heard.metadata.tags).toEqual(['one', 'two']);
    expect(heard.metadata.duration).toBeGreaterThan(15);
    const { warnings } = heard.metadata as { warnings?: { parameter: string }[] };
    expect(warnings?.map(({ parameter }) => parameter)).toEqual(['diarize', 'search', 'keyterm']);
    const [channel] = heard.results.channels;
    expect(channel?.search).toEqual([{ query: 'sun', hits: expect.any(Array) }]);
    expect(alternative?.transcript).not.toMatch(/\bpark\b/);
  });
});
