/** Tries a model in an engine of its own, before the host's engine uses it: does it load, and what does it hear? */
import { once } from 'node:events';
import { createReadStream, realpathSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { wavHeader } from '../engine/audio/wav.ts';
import type { HelperJob } from '../engine/listen/helper-job.ts';
import { describeHelper, type HelperKind, runHelper } from '../engine/listen/helpers.ts';
import { openSherpaOnnxVoice } from '../engine/speak/sherpa-onnx.ts';
import { describeVoiceIn } from '../engine/speak/sherpa-onnx-model.ts';
import { engineSettings, type SpeechConfiguration, startSpeechEngine } from '../engine/start.ts';

export interface Trial {
  /** What was played: a file of the model's publisher, or a sentence in the engine's own voice. */
  sample: string;
  transcript: string;
  /** Seconds of audio, and how long they took. */
  audioSeconds: number;
  tookSeconds: number;
}

/** What the engine says where a model publishes no sample. */
export const SENTENCE = 'The quick brown fox jumps over the lazy dog, and nobody stopped it.';

const START_MS = 120_000;
const POLL_MS = 50;

interface Health {
  listen: { ok: boolean; engine?: string; helpers: string[]; fix?: string };
  speak: { voices: { name: string }[] };
}

interface Heard {
  durationMs: number;
  channels: { words: { word: string; punctuated?: string }[] }[];
}

export interface VoiceTrial {
  /** What was said. */
  sample: string;
  sampleRate: number;
  speakers: number;
  /** Seconds of audio, and how long they took, loading included. */
  audioSeconds: number;
  tookSeconds: number;
}

/** @throws Error that says why the voice cannot be used */
export async function tryVoice(path: string): Promise<VoiceTrial> {
  const model = describeVoiceIn(path);
  const voice = openSherpaOnnxVoice(model);
  const from = performance.now();
  try {
    const { sampleRate, speakers } = await voice.facts();
    let samples = 0;
    await voice.synthesize(SENTENCE, model.name, 1, (some) => {
      samples += some.length;
    });
    if (samples === 0) throw new Error('it said nothing');
    const tookSeconds = (performance.now() - from) / 1_000;
    return { sample: SENTENCE, sampleRate, speakers, audioSeconds: samples / sampleRate, tookSeconds };
  } catch (error) {
    const { cause, message } = error as Error;
    throw new Error(`The voice cannot be loaded as ${model.kind}: ${typeof cause === 'string' ? cause : message}`);
  } finally {
    voice.close();
  }
}

export interface HelperTrial {
  /** What it did, or that it waits for another. */
  result: string;
}

/**
 * @param others that are in use
 * @throws Error that says why the model cannot be used
 */
export async function tryHelper(path: string, others: string[], signal: AbortSignal): Promise<HelperTrial> {
  const models = [path, ...others].map(describeHelper);
  const of = (kind: HelperKind) => models.find((model) => model.kind === kind)?.path;
  const folder = await mkdtemp(join(tmpdir(), 'turnpike-model-'));
  const run = (work: HelperJob) =>
    runHelper(work, { folder, signal, timeoutMs: START_MS }).catch((error: Error) => {
      throw new Error(`The model cannot be loaded: ${typeof error.cause === 'string' ? error.cause : error.message}`);
    });
  try {
    if (models[0]?.kind === 'punctuates') {
      const { text = '' } = await run({ marks: { model: models[0].path, text: bareWords(SENTENCE) } });
      return { result: text };
    }
    const [segmentation, embedding] = [of('segments'), of('recognizes voices')];
    if (segmentation === undefined) return { result: 'waits for a model of segmentation: install one, too' };
    if (embedding === undefined) return { result: 'waits for a model that recognizes voices: install one, too' };
    const file = join(folder, 'silence.wav');
    await writeFile(file, Buffer.concat([wavHeader(16_000, 1, 64_000), Buffer.alloc(64_000)]));
    const { segments = [] } = await run({ speakers: { file, segmentation, embedding, threshold: 0.5 } });
    return { result: `tells speakers apart: ${segments.length} in silence` };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function bareWords(text: string): string {
  return text.toLowerCase().replace(/[^a-z ]/g, '');
}

/** @throws Error that says why the model cannot be used */
export async function tryModel(path: string, configuration: SpeechConfiguration, signal: AbortSignal): Promise<Trial> {
  const folder = await mkdtemp(join(tmpdir(), 'turnpike-model-'));
  const socket = join(folder, 'speech-engine.sock');
  const place = { socket, spool: join(folder, 'spool') };
  const tried = { ...configuration, listenEngine: 'auto' as const, listenModel: '' };
  const settings = engineSettings(tried, place, { hears: path, speak: [] });
  const died: string[] = [];
  const engine = startSpeechEngine(() => settings, { info: () => undefined, error: (_, text) => died.push(text) });
  try {
    const deadline = performance.now() + START_MS;
    while (!engine.running()) {
      signal.throwIfAborted();
      if (died.length > 0) throw new Error('The speech engine ended while it loaded the model.');
      if (performance.now() > deadline) throw new Error(`The model was not loaded within ${START_MS / 1_000} s.`);
      await delay(POLL_MS, undefined, { signal });
    }
    const { listen } = JSON.parse((await ask(socket, 'GET', '/health')).toString()) as Health;
    if (!listen.ok) throw new Error(listen.fix ?? 'The model cannot be used.');
    const published = await sampleOf(path);
    const audio = published ? createReadStream(published) : Readable.from([await spoken(socket)]);
    const from = performance.now();
    const heard = JSON.parse((await ask(socket, 'POST', '/listen?max_billable_ms=600000', audio)).toString()) as Heard;
    const words = heard.channels.flatMap((channel) => channel.words);
    return {
      sample: published ? basename(published) : SENTENCE,
      transcript: words.map(({ word, punctuated }) => punctuated ?? word).join(' '),
      audioSeconds: heard.durationMs / 1_000,
      tookSeconds: (performance.now() - from) / 1_000,
    };
  } finally {
    await engine.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Waits until the engine of a running host uses a model.
 * @param run the host's folder of sockets
 * @param name file or folder of the model
 * @returns false when it does not in time
 */
export async function engineUses(run: string, name: string, signal: AbortSignal): Promise<boolean> {
  // The folder of a deep path is a link to a short one: a socket's path has 107 bytes.
  const socket = join(realpathSync(run), 'speech-engine.sock');
  const deadline = performance.now() + START_MS;
  while (performance.now() < deadline) {
    // It does not answer while it starts anew.
    const answer = await ask(socket, 'GET', '/health').catch(() => undefined);
    const { listen, speak } = JSON.parse(answer?.toString() ?? '{}') as Partial<Health>;
    // whisper.cpp's models are called without the end of their file.
    if (listen?.engine !== undefined && name.replace(/\.(bin|gguf)$/, '') === listen.engine) return true;
    if (speak?.voices.some((voice) => voice.name === name) || listen?.helpers.includes(name)) return true;
    await delay(POLL_MS, undefined, { signal });
  }
  return false;
}

/** The first one in the folder `test_wavs`, which sherpa-onnx's models have. */
async function sampleOf(model: string): Promise<string | undefined> {
  const folder = join(model, 'test_wavs');
  const files = await readdir(folder).catch(() => []);
  const first = files.filter((file) => file.endsWith('.wav')).sort()[0];
  return first === undefined ? undefined : join(folder, first);
}

function spoken(socket: string): Promise<Buffer> {
  const asked = { text: SENTENCE, encoding: 'linear16', container: 'wav' };
  return ask(socket, 'POST', '/speak', Readable.from([JSON.stringify(asked)]));
}

async function ask(socketPath: string, method: string, path: string, body?: Readable): Promise<Buffer> {
  const call = request({ socketPath, method, path });
  if (body === undefined) call.end();
  else body.on('error', (error) => call.destroy(error)).pipe(call);
  const [response] = (await once(call, 'response')) as [Readable & { statusCode: number }];
  const answer = Buffer.concat((await response.toArray()) as Buffer[]);
  if (response.statusCode !== 200) throw new Error(`The trial failed: ${answer.toString().slice(0, 300)}`);
  return answer;
}
