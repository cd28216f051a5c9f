/**
 * The engine alone with sherpa-onnx by its npm package, and the small model of test/speech/model that knows flite's
 * voices: models that are broken, that stream, that help; many streams at once, and jobs that end badly.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { findProgram } from '../../builtin-tenants/speech/engine/programs.ts';
import { commandOf, privateBytes, processTree } from '../bench/processes.ts';
import { dialogue } from '../speech/harness/dialogue.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';
import { requestSocket } from '../speech/harness/socket.ts';
import { toneWav } from '../speech/harness/sound.ts';
import { makeStreamingModel, STREAMING } from '../speech/harness/streaming-model.ts';
import { wordErrorRate } from '../speech/harness/word-errors.ts';
import { until } from './support/until.ts';

/** Its words are the model's, its sentences are not: nothing of it was trained on. */
const PARAGRAPH =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week.';
const NAME = 'zipformer-ctc-machine-voices';
const MODEL = fileURLToPath(new URL(`../speech/model/${NAME}`, import.meta.url));
/** Measured: 6.3 % (test/speech/model/README.md). */
const ACCEPTED_ERRORS = 0.1;

/** That are heard at once. */
const STREAMS = Number(process.env.LIVE_STREAMS ?? 8);

interface Answer {
  engine: { model: string; arch: string; version: string };
  durationMs: number;
  channels: { words: { word: string; start: number; end: number }[] }[];
  warnings: string[];
}

/** The model knows no other voices. */
const flite = await findProgram('flite');

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sherpa-engine-'));
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the engine alone', () => {
  let engine: RunningEngine | undefined;

  afterEach(async () => {
    await engine?.stop();
    engine = undefined;
  });

  const listening = async () => {
    const { json } = await requestSocket(engine?.socket ?? '', 'GET', '/health');
    return (json as { listen: { ok: boolean; fix?: string; queue: { running: number } } }).listen;
  };
  const listen = async (body: Uint8Array, query = '') => {
    const { status, json } = await requestSocket(engine?.socket ?? '', 'POST', `/listen${query}`, body);
    return { status, ...(json as Partial<Answer> & { code?: string; message?: string }) };
  };
  it.skipIf(flite === undefined)(
    'fails calls that ask for a helping model which is broken, and no others',
    async () => {
      const broken = join(folder, 'sherpa-onnx-punct-ct-transformer-broken');
      mkdirSync(broken);
      writeFileSync(join(broken, 'model.onnx'), 'x');
      const helpers = [broken, join(folder, 'gone.onnx')];
      engine = await startEngine({ listen: { model: MODEL, helpers } });
      const audio = dialogue(folder);
      expect(await listen(audio, '?punctuate=true')).toMatchObject({ status: 500, code: 'internal' });
      expect(await listen(audio, '?diarize=true')).toMatchObject({
        status: 200,
        warnings: expect.arrayContaining([expect.stringMatching(/^diarize: /)]),
      });
      expect(await listen(toneWav(1), '?punctuate=true')).toMatchObject({ status: 200 });
    },
  );

  it.skipIf(flite === undefined)('hears files with a model that streams', async () => {
    engine = await startEngine({ listen: { model: makeStreamingModel(folder) } });
    expect(await listening()).toMatchObject({ ok: true, engine: STREAMING, arch: 'sherpa-onnx' });
    const heard = await listen(speech(PARAGRAPH, 'rms', ['-f', 'wav']));
    expect(heard).toMatchObject({ status: 200, engine: { version: 'streaming-zipformer-ctc' } });
    const words = heard.channels?.[0]?.words ?? [];
    expect(wordErrorRate(PARAGRAPH, words.map(({ word }) => word).join(' '))).toBeLessThanOrEqual(ACCEPTED_ERRORS);
    for (const [at, { start, end }] of words.entries()) {
      expect(end).toBeGreaterThan(start);
      expect(start).toBeGreaterThanOrEqual(words[at - 1]?.start ?? 0);
    }
  });

  it.skipIf(flite === undefined).each([
    ['in windows', () => MODEL],
    ['as they come', () => makeStreamingModel(folder)],
  ])(`hears ${STREAMS} streams at once %s, refuses more, and ends one that is silent`, async (_how, model) => {
    engine = await startEngine({ listen: { model: model(), liveStreams: STREAMS + 1 } });
    const wav = join(folder, 'streams.wav');
    spawnSync('flite', ['-voice', 'rms', '-t', 'The children played with a ball in the park.', '-o', wav]);
    const audio = spawnSync('ffmpeg', [
      '-v',
      'error',
      '-i',
      wav,
      '-ar',
      '16000',
      '-ac',
      '1',
      '-f',
      's16le',
      '-',
    ]).stdout;
    const idle = privateBytes([engine.pid]);
    const query = 'encoding=linear16&sample_rate=16000&interim=true&endpointing=300&max_billable_ms=60000';
    const open = async (payer: string) => {
      const socket = new WebSocket(`ws+unix://${engine?.socket}:/live?${query}&payer=${payer}`);
      await new Promise((resolve, reject) => {
        socket.once('open', resolve);
        socket.once('unexpected-response', (_request, { statusCode }) => reject(new Error(String(statusCode))));
      });
      return socket;
    };
    const silent = await open('p2');
    const silentEnd = new Promise((resolve) => silent.once('message', (data) => resolve(JSON.parse(String(data)).end)));
    const sockets = await Promise.all(Array.from({ length: STREAMS }, (_, at) => open(`p${at % 2}`)));
    await expect(open('p3')).rejects.toThrow('429');
    const ends = sockets.map(async (socket) => {
      const finals: string[] = [];
      let interims = 0;
      socket.on('message', (data) => {
        const { message } = JSON.parse(String(data));
        if (message?.is_final === false) interims += 1;
        if (message?.is_final) finals.push(message.channel.alternatives[0].transcript);
      });
      const send = async (from: number, to: number) => {
        for (let at = from; at < to; at += 3200) {
          socket.send(audio.subarray(at, Math.min(to, at + 3200)));
          await sleep(50);
        }
      };
      // In the middle of the sentence, which has no pause: a first result comes as soon as the machine has time for it.
      const middle = 3200 * Math.floor(audio.length / 6400);
      await send(0, middle);
      await until(() => {
        socket.send('{"type":"KeepAlive"}');
        return interims > 0;
      }, 'an interim result');
      await send(middle, audio.length);
      socket.send('{"type":"CloseStream"}');
      await new Promise((resolve) => socket.once('close', resolve));
      return finals.join(' ');
    });
    await sleep(1000);
    expect(privateBytes([engine.pid]) - idle).toBeLessThan(250 * 1024 * 1024);
    const heard = await Promise.all(ends);
    for (const text of heard)
      expect(wordErrorRate('The children played with a ball in the park.', text)).toBeLessThanOrEqual(0.2);
    (await open('p0')).terminate();
    expect(await silentEnd).toMatchObject({ code: 1011, reason: expect.stringContaining('NET-0001') });
  });

  const jobs = () => processTree([engine?.pid ?? 0]).filter((pid) => commandOf(pid).includes('sherpa-onnx-job'));

  /** A folder with a model's files, each copied from the real one unless its content is given. */
  function modelFolder(name: string, files: Record<string, string | Buffer | undefined>): string {
    const place = join(folder, name);
    mkdirSync(place, { recursive: true });
    for (const [file, content] of Object.entries(files)) {
      if (content === undefined) copyFileSync(join(MODEL, file), join(place, file));
      else writeFileSync(join(place, file), content);
    }
    return place;
  }

  /** What flite says, as FFmpeg makes it. */
  function speech(text: string, voice: string, format: string[]): Buffer {
    const [plain, made] = [join(folder, `${voice}.wav`), join(folder, `${voice}-made`)];
    spawnSync('flite', ['-voice', voice, '-t', text, '-o', plain]);
    spawnSync('ffmpeg', ['-v', 'error', '-y', '-i', plain, ...format, made]);
    return readFileSync(made);
  }

  /** Silence that is small to send and long to work on. */
  function silence(seconds: number): Buffer {
    const made = join(folder, 'silence.flac');
    spawnSync('ffmpeg', [
      '-v',
      'error',
      '-y',
      '-f',
      'lavfi',
      '-i',
      'anullsrc=r=16000:cl=mono',
      '-t',
      `${seconds}`,
      made,
    ]);
    return readFileSync(made);
  }

  it.each([
    ['tokens are missing', { 'model.int8.onnx': undefined }, /has no tokens\.txt/],
    ['there is no model', { 'tokens.txt': undefined }, /no model that is known/],
    [
      'the model is garbage',
      { 'tokens.txt': undefined, 'model.int8.onnx': Buffer.alloc(20_000, 'garbage') },
      /cannot be loaded as zipformer-ctc: Load model from model\.int8\.onnx failed/,
    ],
    ['tokens are garbage', { 'tokens.txt': 'a b c\n', 'model.int8.onnx': undefined }, /cannot be loaded/],
  ])('answers 503 that says what is wrong where %s', async (name, files, fix) => {
    const model = modelFolder(`zipformer ${name}`, files);
    engine = await startEngine({ listen: { engine: 'sherpa-onnx', model } });
    expect(await listening()).toMatchObject({ ok: false, fix: expect.stringMatching(fix) });
    expect(await listen(toneWav(1))).toMatchObject({
      status: 503,
      code: 'no_engine',
      message: expect.stringMatching(fix),
    });
  });

  it.skipIf(flite === undefined)(
    'takes a folder with spaces that begins with a dash, other rates, and channels apart',
    async () => {
      const model = modelFolder('-- zipformer voices', { 'tokens.txt': undefined, 'model.int8.onnx': undefined });
      engine = await startEngine({ listen: { model } });
      const said = 'the old house stood near the river';
      const mono = await listen(speech(said, 'rms', ['-ar', '8000', '-f', 'wav']));
      expect(mono).toMatchObject({ status: 200, engine: { arch: 'sherpa-onnx', model: '-- zipformer voices' } });
      const stereo = await listen(speech(said, 'slt', ['-ac', '2', '-ar', '44100', '-f', 'wav']), '?multichannel=true');
      expect(stereo.channels).toHaveLength(2);
      expect(stereo.warnings).toEqual(['confidence: the model gives none; 1 stands for unknown']);
      for (const { words } of stereo.channels ?? []) {
        expect(wordErrorRate(said, words.map(({ word }) => word).join(' '))).toBeLessThanOrEqual(0.3);
      }
      // one sample, and none
      expect(await listen(toneWav(1 / 16_000))).toMatchObject({ status: 200, channels: [{ words: [] }] });
      expect(await listen(toneWav(0))).toMatchObject({ status: 400, code: 'unsupported_audio' });
    },
  );

  it('hears a quarter of an hour in pieces, and its process ends with the call, or alone', async () => {
    engine = await startEngine({ listen: { model: MODEL } });
    const quarter = silence(900);
    const heard = listen(quarter);
    let most = 0;
    await until(
      async () => {
        for (const pid of jobs()) most = Math.max(most, residentBytes(pid));
        return (await Promise.race([heard, undefined])) as object | undefined;
      },
      'what is heard',
      300_000,
    );
    expect(await heard).toMatchObject({ status: 200, durationMs: 900_000, channels: [{ words: [] }] });
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(300 * 1024 * 1024);

    const call = request({ socketPath: engine.socket, method: 'POST', path: '/listen' });
    call.on('error', () => {});
    call.end(quarter);
    await expect.poll(jobs, { interval: 20 }).toHaveLength(1);
    call.destroy();
    await expect.poll(jobs).toEqual([]);
    await expect.poll(async () => (await listening()).queue.running).toBe(0);

    const killed = listen(quarter);
    await expect.poll(jobs, { interval: 20 }).toHaveLength(1);
    process.kill(jobs()[0] ?? 0, 'SIGKILL');
    expect(await killed).toMatchObject({ status: 500, code: 'internal' });
    expect(await listening()).toMatchObject({ ok: true, queue: { running: 0 } });
  });

  it('works on so many at once, and refuses the rest', async () => {
    const [running, waiting] = [2, 10];
    engine = await startEngine({ listen: { model: MODEL, jobs: running, waiting } });
    const audio = silence(20);
    let most = 0;
    const sampling = setInterval(() => {
      most = Math.max(most, jobs().length);
    }, 10);
    const answers = await Promise.all(Array.from({ length: 20 }, () => listen(audio)));
    clearInterval(sampling);
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(running + waiting);
    expect(statuses.filter((status) => status === 429)).toHaveLength(20 - running - waiting);
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(running);
  });
});

function residentBytes(pid: number): number {
  try {
    return Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
