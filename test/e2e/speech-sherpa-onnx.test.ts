/**
 * sherpa-onnx by its npm package, with the small model of test/speech/model that knows flite's voices: on the real host,
 * paid by a stock client.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { DeepgramClient } from '@deepgram/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram } from '../../builtin-tenants/speech/engine/programs.ts';
import { commandOf, processTree } from '../bench/processes.ts';
import { dialogue } from '../speech/harness/dialogue.ts';
import { makeEmbedding, makePunctuation, makeSegmentation } from '../speech/harness/insight-models.ts';
import { PIPER, packVoice } from '../speech/harness/voices.ts';
import { wordErrorRate } from '../speech/harness/word-errors.ts';
import { expectTime } from '../times.ts';
import { account, balances, deploy, jsonPost, mppFetch, paymentFor } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { startModelServer } from './support/model-server.ts';
import type { CommandResult } from './support/turnpike-command.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

/** Its words are the model's, its sentences are not: nothing of it was trained on. */
const PARAGRAPH =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week.';
const NAME = 'zipformer-ctc-machine-voices';
const MODEL = fileURLToPath(new URL(`../speech/model/${NAME}`, import.meta.url));
/** Measured: 6.3 % (test/speech/model/README.md). */
const ACCEPTED_ERRORS = 0.1;
const UNKNOWN_CONFIDENCE = { parameter: 'confidence', message: 'the model gives none; 1 stands for unknown' };

interface Diarized {
  metadata: { duration: number; warnings?: { parameter: string }[] };
  results: {
    utterances: { speaker: number; transcript: string }[];
    channels: {
      alternatives: {
        transcript: string;
        words: { speaker: number }[];
        paragraphs: { transcript: string; paragraphs: { speaker: number }[] };
      }[];
    }[];
  };
}

/** The model knows no other voices. */
const flite = await findProgram('flite');

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sherpa-'));
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('on the host', () => {
  let host: TestHost;
  let speech: string;
  let installed: CommandResult;

  beforeAll(async () => {
    host = await startHost({ builtins: ['speech'], flags: { 'log-level': 'warn' } });
    speech = `http://localhost:${host.port}/speech`;
    const publisher = await startModelServer();
    const archive = join(folder, `${NAME}.tar.bz2`);
    execFileSync('tar', ['-C', dirname(MODEL), '-cjf', archive, NAME]);
    publisher.files.set(basename(archive), readFileSync(archive));
    // Into the host that runs: its engine changes to the new model by itself.
    installed = await turnpike(
      ['speech', 'install', `${publisher.url}/${basename(archive)}`, '--json', '--data', host.data],
      { cwd: host.data },
    );
    await publisher.stop();
    // the tenant is there before the engine has loaded its voices and its model
    await until(async () => ((await listenHealth().catch(() => undefined))?.ok ? true : undefined), host.output);
  });

  afterAll(async () => await host?.stop());

  async function listenHealth(): Promise<{ ok: boolean; detail?: object }> {
    const { engines } = (await (await fetch(`${speech}/healthz`)).json()) as { engines: { listen: { ok: boolean } } };
    return engines.listen;
  }

  it('has its model by one command, which tried it', async () => {
    expect(installed).toMatchObject({ code: 0, stderr: '' });
    const { model, inUse, trial } = installed.json();
    expect([model, inUse]).toEqual([NAME, true]);
    expect(trial.transcript).toMatch(/nobody stopped it/);
    const { stdout } = await turnpike(['speech', 'models', '--data', host.data], { cwd: host.data });
    expect(stdout).toMatch(new RegExp(`${NAME} +hears +in use`));
    const doctor = (await turnpike(['doctor', '--json', '--data', host.data], { cwd: host.data })).json();
    expect(doctor.findings).toContainEqual(expect.objectContaining({ name: 'speech', state: 'ok', detail: NAME }));
  });

  it('says that it listens', async () => {
    expect(await listenHealth()).toMatchObject({ ok: true, detail: { engine: NAME, arch: 'sherpa-onnx' } });
    expect(await (await fetch(`${speech}/`)).text()).toContain(`Transcribed by <code>${NAME}</code>`);
  });

  it.skipIf(flite === undefined)('transcribes what it spoke, from a served URL, paid by the stock client', async () => {
    const pay = mppFetch(host.network, 0);
    const deepgram = new DeepgramClient({
      auth: false,
      baseUrl: speech,
      fetch: pay as typeof fetch,
      timeoutInSeconds: 300,
    });
    const spoken = await deepgram.speak.v1.audio.generate({ text: PARAGRAPH });
    const audio = Buffer.from(await spoken.arrayBuffer());
    await deploy(mppFetch(host.network, 2), host.url, {
      slug: 'files',
      code: `const audio = Uint8Array.from(atob(${JSON.stringify(audio.toString('base64'))}), (c) => c.charCodeAt(0));
export default { fetch: () => new Response(audio, { headers: { 'content-type': 'audio/mpeg' } }) };`,
    });
    const wealth = async () => {
      const { mpp, x402 } = await balances(host.network, host.network.wallets[0]?.address ?? '0x');
      return mpp + x402;
    };
    const before = await wealth();
    const heard = await deepgram.listen.v1.media.transcribeUrl({ url: `http://localhost:${host.port}/files/talk.mp3` });
    if (!('results' in heard)) throw new Error('expected a transcript');
    const alternative = heard.results.channels[0]?.alternatives?.[0];
    expect(wordErrorRate(PARAGRAPH, alternative?.transcript ?? '')).toBeLessThanOrEqual(ACCEPTED_ERRORS);
    const words = alternative?.words ?? [];
    let last = -1;
    for (const { start = 0, end = 0 } of words) {
      expect(start).toBeGreaterThan(last);
      expect(end).toBeGreaterThan(start);
      last = start;
    }
    expect(last).toBeLessThan(heard.metadata.duration);
    expect(last).toBeGreaterThan(heard.metadata.duration - 2);
    expect(Object.values(heard.metadata.model_info)).toEqual([
      { name: NAME, version: 'zipformer-ctc', arch: 'sherpa-onnx' },
    ]);
    expect((heard.metadata as { warnings?: object[] }).warnings).toContainEqual(
      expect.objectContaining(UNKNOWN_CONFIDENCE),
    );
    const charge = Math.ceil(Math.round(heard.metadata.duration * 1000) / 10);
    await expect.poll(wealth).toBe(before - BigInt(charge));
  });

  describe.skipIf(flite === undefined)('live', () => {
    interface Said {
      type: string;
      start: number;
      duration: number;
      is_final: boolean;
      speech_final: boolean;
      from_finalize: boolean;
      channel_index: number[];
      channel: {
        search?: { query: string; hits: { snippet: string }[] }[];
        alternatives: { transcript: string; words: { start: number; end: number }[] }[];
      };
      charge: { usd: string; seconds: number };
      warnings?: { parameter: string; message: string }[];
    }
    const RAW = { encoding: 'linear16', sample_rate: '16000' };
    const wealthOf = async (index: number) => {
      const { mpp, x402 } = await balances(host.network, account(host.network, index).address);
      return mpp + x402;
    };
    let sentence: Buffer;

    // biome-ignore lint/suspicious/noDuplicateTestHooks: each is of its own group
    beforeAll(() => {
      sentence = spoken('The children played with a ball in the park.', '16000', '-f', 's16le');
    });

    function spoken(text: string, rate: string, ...format: string[]): Buffer {
      const wav = join(folder, 'said.wav');
      spawnSync('flite', ['-voice', 'rms', '-t', text, '-o', wav]);
      const args = ['-v', 'error', '-i', wav, '-ar', rate, '-ac', '1', ...format, '-'];
      return spawnSync('ffmpeg', args, { maxBuffer: 1e8 }).stdout;
    }

    /** By the stock SDK, paid with the handshake. */
    async function openStream(wallet: number, options: Record<string, string>, most?: string) {
      const path = `${speech}/v1/listen?${new URLSearchParams(options)}`;
      const wishes: Record<string, string> = most === undefined ? {} : { 'x-max-price': most };
      const payment = await paymentFor(path, (sender) => {
        const pay = mppFetch(host.network, wallet, sender);
        return ((input: string) => pay(input, { headers: wishes })) as typeof fetch;
      });
      const deepgram = new DeepgramClient({ auth: false, baseUrl: speech.replace('http', 'ws') });
      const socket = await deepgram.listen.v1.connect({
        model: 'general' as never,
        Authorization: payment.authorization ?? '',
        headers: { ...wishes, Authorization: payment.authorization ?? '' },
        queryParams: options,
        reconnectAttempts: 0,
      });
      const said: (Said & { at: number })[] = [];
      socket.on('message', (message) => said.push({ ...(message as unknown as Said), at: performance.now() }));
      const closed = new Promise<{ code: number; reason: string }>((resolve) =>
        socket.on('close', (event) => resolve(event as { code: number; reason: string })),
      );
      socket.connect();
      await socket.waitForOpen();
      return { socket, said, closed };
    }

    it('the stock SDK hears a sentence while it is spoken, and is charged by the second', async () => {
      const before = await wealthOf(3);
      const { socket, said, closed } = await openStream(3, {
        ...RAW,
        interim_results: 'true',
        vad_events: 'true',
        utterance_end_ms: '1000',
        diarize: 'true',
        search: 'ball',
        numerals: 'true',
      });
      const audio = Buffer.concat([sentence, Buffer.alloc(2 * 32_000)]);
      const sentAt: number[] = [];
      for (let at = 0; at < audio.length; at += 3200) {
        socket.sendMedia(audio.subarray(at, at + 3200));
        sentAt.push(performance.now());
        await sleep(100);
      }
      socket.sendKeepAlive({ type: 'KeepAlive' });
      socket.sendFinalize({ type: 'Finalize' });
      socket.sendCloseStream({ type: 'CloseStream' });
      const { code, reason } = await closed;
      const results = said.filter(({ type }) => type === 'Results');
      const final = results.filter(({ is_final, from_finalize }) => is_final && !from_finalize);
      const text = final.map(({ channel }) => channel.alternatives[0]?.transcript).join(' ');
      expect(wordErrorRate('The children played with a ball in the park.', text)).toBeLessThanOrEqual(0.2);
      expect(final.at(-1)).toMatchObject({ speech_final: true, channel_index: [0, 1] });
      const found = final.flatMap(({ channel }) => channel.search ?? []).flatMap(({ hits }) => hits);
      expect(found).toEqual([expect.objectContaining({ snippet: 'ball' })]);
      expect(results.filter(({ is_final }) => !is_final).length).toBeGreaterThan(2);
      expect(results.some(({ from_finalize }) => from_finalize)).toBe(true);
      expect(said.map(({ type }) => type)).toEqual(expect.arrayContaining(['SpeechStarted', 'UtteranceEnd']));
      const seconds = Math.ceil(audio.length / 32_000);
      const metadata = said.at(-1);
      expect(metadata).toMatchObject({ type: 'Metadata', channels: 1, charge: { seconds } });
      expect(metadata?.warnings?.map(({ parameter }) => parameter)).toEqual(
        expect.arrayContaining(['diarize', 'confidence']),
      );
      expect([code, reason]).toEqual([1000, expect.stringContaining(`charged ${metadata?.charge.usd} USD`)]);
      await expect.poll(() => wealthOf(3)).toBe(before - BigInt(seconds * 100));
      // From the moment at which the last of what it tells of was sent.
      const lags = results
        .filter(({ is_final }) => !is_final)
        .map(({ at, start, duration }) => at - (sentAt[Math.ceil((start + duration) * 10 - 0.001) - 1] ?? at));
      const [typical = 0] = lags.toSorted((a, b) => a - b).slice(Math.floor(lags.length / 2));
      expectTime('an interim result after its audio', typical, 300);
    });

    it('containers, mu-law and two channels are heard as they come', async () => {
      const webm = spoken('The children played with a ball in the park.', '48000', '-c:a', 'libopus', '-f', 'webm');
      const mulaw = spoken('The children played with a ball in the park.', '8000', '-f', 'mulaw');
      const stereo = Buffer.alloc(sentence.length * 2);
      for (let at = 0; at < sentence.length; at += 2) stereo.writeInt16LE(sentence.readInt16LE(at), at * 2);
      const streams = [
        { audio: webm, options: { interim_results: 'false' }, errors: 0.3 },
        { audio: mulaw, options: { encoding: 'mulaw', sample_rate: '8000' }, errors: 1 },
        { audio: stereo, options: { ...RAW, channels: '2', multichannel: 'true' }, errors: 0.2 },
      ];
      for (const { audio, options, errors } of streams) {
        const { socket, said, closed } = await openStream(5, options);
        for (let at = 0; at < audio.length; at += 16_000) socket.sendMedia(audio.subarray(at, at + 16_000));
        socket.sendCloseStream({ type: 'CloseStream' });
        expect((await closed).code).toBe(1000);
        const first = said.filter(({ type, channel_index }) => type === 'Results' && channel_index[0] === 0);
        const text = first.map(({ channel }) => channel.alternatives[0]?.transcript).join(' ');
        expect(wordErrorRate('The children played with a ball in the park.', text)).toBeLessThanOrEqual(errors);
        const length = (sentence.length / 32_000) * (audio === stereo ? 2 : 1);
        expect(Math.abs((said.at(-1)?.charge.seconds ?? 0) - Math.ceil(length))).toBeLessThanOrEqual(1);
      }
    });

    it('what is refused costs nothing, and what is no audio ends with Deepgram’s codes', async () => {
      const unpaid = await fetch(`${speech}/v1/listen`);
      expect(unpaid.status).toBe(402);
      const before = await wealthOf(6);
      await expect(openStream(6, { encoding: 'linear16' })).rejects.toThrow();
      const hostile: [
        Record<string, string>,
        (socket: Awaited<ReturnType<typeof openStream>>['socket']) => void,
        number,
      ][] = [
        [RAW, (socket) => socket.socket.send('no JSON'), 1008],
        [RAW, (socket) => socket.sendMedia(Buffer.alloc(1_100_000)), 1009],
        [{}, (socket) => socket.sendMedia(randomBytes(4000)), 1008],
        [{}, (socket) => socket.sendMedia(Buffer.from(`#EXTM3U\n${'x'.repeat(100)}\nhttp://localhost/\n`)), 1008],
        [{}, (socket) => socket.sendMedia(Buffer.concat([Buffer.from('OggS'), randomBytes(4000)])), 1008],
      ];
      for (const [options, send, expected] of hostile) {
        const { socket, said, closed } = await openStream(6, options);
        send(socket);
        if (options === RAW) expect((await closed).code).toBe(expected);
        else {
          socket.sendCloseStream({ type: 'CloseStream' });
          expect((await closed).code).toBe(expected);
        }
        expect(said.at(-1)).toMatchObject({ type: 'Metadata', charge: { usd: '0.00', seconds: 0 } });
      }
      // Three times was enough: the next has to wait, as with files.
      await expect(openStream(6, RAW)).rejects.toThrow();
      await expect.poll(() => wealthOf(6)).toBe(before);
      const later = await until(() => openStream(6, RAW).catch(() => undefined));
      later.socket.sendCloseStream({ type: 'CloseStream' });
      expect((await later.closed).code).toBe(1000);
      await expect.poll(() => wealthOf(6)).toBe(before);
    });

    it('nothing is heard beyond what is held: the stream ends and says so', async () => {
      const before = await wealthOf(6);
      // Good for ten seconds.
      const { socket, said, closed } = await openStream(6, RAW, '0.001');
      for (let second = 0; second < 12; second++) socket.sendMedia(Buffer.alloc(32_000));
      const { code, reason } = await closed;
      expect([code, reason]).toEqual([1000, expect.stringContaining('hold more with x-max-price')]);
      expect(said.at(-1)).toMatchObject({ charge: { usd: '0.001', seconds: 10 } });
      await expect.poll(() => wealthOf(6)).toBe(before - 1_000n);
    });

    it('cuts: the caller, the recognizer and the engine; each costs the seconds that were heard', async () => {
      let before = await wealthOf(7);
      const cuts: ((socket: Awaited<ReturnType<typeof openStream>>['socket']) => void)[] = [
        ({ socket }) => socket.close(),
        () => kill(/sherpa-onnx-process/),
        () => kill(/speech\/engine\/main/),
      ];
      for (const cut of cuts) {
        const { socket, said, closed } = await openStream(7, { ...RAW, interim_results: 'true' });
        for (let at = 0; at < 2 * 32_000; at += 3200) socket.sendMedia(sentence.subarray(at, at + 3200));
        await until(() => (said.some(({ type }) => type === 'Results') ? true : undefined));
        cut(socket);
        // The recognizer is missed when it is needed; the next piece may find another one already.
        if (socket.readyState === 1) socket.sendFinalize({ type: 'Finalize' });
        await Promise.race([closed, until(() => (said.some((one) => one.from_finalize) ? true : undefined))]);
        if (socket.readyState === 1) socket.sendCloseStream({ type: 'CloseStream' });
        const { code, reason } = await closed;
        if (cut !== cuts[0]) {
          expect([code, reason]).toEqual([
            expect.toBeOneOf(cut === cuts[1] ? [1000, 1011] : [1011]),
            expect.stringMatching(/^(NET-0000.*|the stream was closed); charged 0\.0002 USD for 2 s$/),
          ]);
          expect(said.at(-1)).toMatchObject({ type: 'Metadata', charge: { usd: '0.0002', seconds: 2 } });
        }
        before -= 200n;
        await expect.poll(() => wealthOf(7)).toBe(before);
        await until(async () => ((await listenHealth().catch(() => undefined))?.ok ? true : undefined));
      }
    });

    it('speaks as text comes: a sentence at a time, charged by its characters', async () => {
      const before = await wealthOf(5);
      const payment = await paymentFor(
        `${speech}/v1/speak`,
        (sender) => mppFetch(host.network, 5, sender) as typeof fetch,
      );
      const deepgram = new DeepgramClient({ auth: false, baseUrl: speech.replace('http', 'ws') });
      const socket = await deepgram.speak.v1.connect({
        model: 'flite' as never,
        encoding: 'linear16',
        sample_rate: 16_000 as never,
        Authorization: payment.authorization ?? '',
        headers: { Authorization: payment.authorization ?? '' },
        reconnectAttempts: 0,
      });
      const said: { type: string; charge?: object }[] = [];
      const audio: Buffer[] = [];
      socket.on('message', (message) => {
        if (message instanceof ArrayBuffer || ArrayBuffer.isView(message))
          audio.push(Buffer.from(message as ArrayBuffer));
        else if (message instanceof Blob) void message.arrayBuffer().then((bytes) => audio.push(Buffer.from(bytes)));
        else said.push(message as { type: string });
      });
      const closed = new Promise<{ code: number; reason: string }>((resolve) =>
        socket.on('close', (event) => resolve(event as { code: number; reason: string })),
      );
      socket.connect();
      await socket.waitForOpen();
      const first = 'The children played ';
      const second = 'with a ball. In the park.';
      socket.sendText({ type: 'Speak', text: first });
      socket.sendText({ type: 'Speak', text: second });
      socket.sendFlush({ type: 'Flush' });
      await until(() => (said.some(({ type }) => type === 'Flushed') ? true : undefined));
      // What is cleared is not spoken and not charged.
      socket.sendText({ type: 'Speak', text: 'Nobody hears this' });
      socket.sendClear({ type: 'Clear' });
      await until(() => (said.some(({ type }) => type === 'Cleared') ? true : undefined));
      socket.sendClose({ type: 'Close' });
      const characters = first.length + second.length;
      const usd = `0.00${characters * 25}`;
      expect(await closed).toMatchObject({ code: 1000, reason: expect.stringContaining(`charged ${usd} USD`) });
      expect(said.at(-1)).toMatchObject({ type: 'Metadata', charge: { usd, characters } });
      await until(() => (Buffer.concat(audio).length > 2 * 32_000 ? true : undefined));
      await expect.poll(() => wealthOf(5)).toBe(before - BigInt(characters * 25));
    });

    function kill(pattern: RegExp): void {
      const pids = processTree([host.pid]).filter((pid) => pattern.test(commandOf(pid)));
      expect(pids.length).toBeGreaterThan(0);
      for (const pid of pids) process.kill(pid, 'SIGKILL');
    }
  });

  it.skipIf(flite === undefined)('tells speakers apart, and punctuates, with models that are installed', async () => {
    const pay = mppFetch(host.network, 1);
    const audio = dialogue(folder);
    const transcribe = async () => {
      const query = 'diarize=true&punctuate=true&utterances=true&paragraphs=true&numerals=true';
      const response = await pay(`${speech}/v1/listen?${query}`, {
        method: 'POST',
        headers: { 'content-type': 'audio/wav' },
        body: audio,
      });
      expect(response.status).toBe(200);
      const heard = (await response.json()) as Diarized;
      const charge = Math.ceil(Math.round(heard.metadata.duration * 1000) / 10);
      expect(Number(response.headers.get('x-payment-amount')) * 1e6).toBeCloseTo(charge);
      return heard;
    };
    const before = await transcribe();
    const warnings = ({ metadata }: Diarized) => metadata.warnings?.map(({ parameter }) => parameter);
    expect(warnings(before)).toEqual(expect.arrayContaining(['diarize', 'punctuate', 'paragraphs']));
    for (const make of [makeSegmentation, makeEmbedding, makePunctuation]) {
      const command = ['speech', 'install', '--from', make(folder), '--json', '--data', host.data];
      const added = await turnpike(command, { cwd: host.data });
      expect(added).toMatchObject({ code: 0, stderr: '' });
      expect(added.json()).toMatchObject({ kind: 'helps', inUse: true, trial: { result: expect.any(String) } });
    }
    const { results, metadata } = await transcribe();
    expect(warnings({ results, metadata })).not.toEqual(expect.arrayContaining(['diarize']));
    expect(warnings({ results, metadata })).not.toEqual(expect.arrayContaining(['punctuate']));
    const [alternative] = results.channels[0]?.alternatives ?? [];
    expect(results.utterances.map(({ speaker }) => speaker)).toEqual([0, 1, 0]);
    expect(results.utterances[1]?.transcript).toMatch(/morning,$/);
    expect(alternative?.transcript).toMatch(/^The children .* park\. The weather/);
    expect(alternative?.words.every(({ speaker }) => speaker === 0 || speaker === 1)).toBe(true);
    const { paragraphs, transcript } = alternative?.paragraphs ?? { paragraphs: [], transcript: '' };
    expect(paragraphs.map(({ speaker }) => speaker)).toEqual([0, 1, 0]);
    expect(transcript).toMatch(/^Speaker 0: The children .*\n\nSpeaker 1: The weather .*\n\nSpeaker 0: /);
    const { stdout } = await turnpike(['speech', 'models', '--data', host.data], { cwd: host.data });
    expect(stdout.match(/helps +in use/g)).toHaveLength(3);
  });

  it('takes a voice while it is paid: each call is whole or costs nothing, and the next is spoken by it', async () => {
    packVoice(PIPER, folder);
    const archive = join(folder, `${PIPER}.tar.gz`);
    execFileSync('tar', ['-C', folder, '-czf', archive, PIPER]);
    // Nobody else’s: what is given back of earlier calls would come meanwhile.
    const payer = 3;
    const { address } = account(host.network, payer);
    const wealth = async () => {
      const { mpp, x402 } = await balances(host.network, address);
      return mpp + x402;
    };
    const pay = mppFetch(host.network, payer);
    const speak = async (text: string, model: string) => {
      const response = await pay(`${speech}/v1/speak?encoding=linear16&container=none&${model}`, jsonPost({ text }));
      return { status: response.status, model: response.headers.get('dg-model-name'), audio: await response.bytes() };
    };
    const before = await wealth();
    const text = 'The children played with a ball. Their parents talked.';
    const calls: Awaited<ReturnType<typeof speak>>[] = [];
    let over = false;
    // An answer that is under way while the engine starts anew breaks off, and costs nothing either.
    const brokenOff = { status: 503, model: null, audio: new Uint8Array() };
    const calling = (async () => {
      while (!over) {
        calls.push(await speak(text, 'model=espeak-ng-en').catch(() => brokenOff));
        // The voice is tried meanwhile, which takes a core.
        await sleep(200);
      }
    })();
    const command = ['speech', 'install', '--from', archive, '--json', '--data', host.data];
    const added = await turnpike(command, { cwd: host.data }).finally(() => {
      over = true;
    });
    await calling;
    expect(added).toMatchObject({ code: 0, stderr: '' });
    expect(added.json()).toMatchObject({ model: PIPER, kind: 'speaks', inUse: true });
    const whole = calls.filter(({ status }) => status === 200);
    const lengths = whole.map(({ audio }) => audio.length);
    // espeak-ng says a text a few samples longer or shorter than the last time
    expect(Math.min(...lengths)).toBeGreaterThan(Math.max(...lengths) - 1000);
    expect(whole.every(({ model }) => model?.startsWith('espeak-ng'))).toBe(true);
    expect(new Set(calls.map(({ status }) => status)).difference(new Set([200, 503]))).toEqual(new Set());
    const next = await speak(text, '');
    expect(next).toMatchObject({ status: 200, model: `sherpa-onnx-${PIPER}` });
    expect(next.audio.length).toBeGreaterThan(48_000);
    const charge = BigInt((whole.length + 1) * text.length * 25);
    await expect.poll(wealth).toBe(before - charge);
    const { engines } = (await (await fetch(`${speech}/healthz`)).json()) as { engines: { speak: object } };
    expect(engines.speak).toMatchObject({ detail: { voices: [{ name: PIPER }] } });
    expect(await listenHealth()).toMatchObject({ ok: true, detail: { engine: NAME } });
  });
});
