/**
 * A worker thread that speaks: keeps the voices loaded, makes one piece after the other and posts its bytes at once.
 */
import { type MessagePort, workerData } from 'node:worker_threads';
import { EngineFailure, type FailureCode } from '../failure.ts';
import { createEncoder } from './encode.ts';
import { openEspeak } from './espeak.ts';
import { openFlite } from './flite.ts';
import { chooseFormat, type SpeechFormat } from './format.ts';
import { openSherpaOnnxVoice } from './sherpa-onnx.ts';
import type { VoiceModel } from './sherpa-onnx-model.ts';
import type { AskedVoice, Voice, VoiceEngine } from './voice.ts';

/** What a thread is started with. */
export interface SpeakSetup {
  /** Folder for text and sound while they are worked on. */
  spool: string;
  /** Voices that the operator installed, the preferred one first. */
  installed: VoiceModel[];
}

export type SpeakPiece = { text: string; speed: number } | { pauseMs: number };

export interface SpeakTask {
  pieces: SpeakPiece[];
  asked: AskedVoice;
  format: SpeechFormat;
  ffmpeg: string | undefined;
  /** Preference of the operator. */
  engine: 'auto' | VoiceEngine;
  /** Voice where the caller names none that is here. */
  standardVoice: string;
  port: MessagePort;
}

/** What is posted on the port: first the voice, then bytes; or why there is none, or no more. Always an end. */
export type SpeakMessage = SpokenBy | { bytes: Uint8Array } | ThreadFailure | { end: true };

/** An EngineFailure, of which a thread's own errors would keep the message only. */
export interface ThreadFailure {
  failed: FailureCode;
  message: string;
  /** For the log. */
  cause?: unknown;
}

export interface SpokenBy {
  engine: string;
  voice: string;
  /** Whether it is the installed voice that the caller named. */
  isAsked: boolean;
}

const { spool, installed: models } = workerData as SpeakSetup;
const espeak = await openEspeak();
const flite = await openFlite(spool);
const installed = models.map(openSherpaOnnxVoice);
await warmUp();

/** The first words compile the code of voice and encoder: let that happen before a caller waits. */
async function warmUp(): Promise<void> {
  const text = 'The quick brown fox jumps over the lazy dog, and nobody has to wait for it to be compiled.';
  for (const voice of [flite, espeak]) {
    if (voice === undefined) continue;
    const name = voice.voiceFor('en') ?? '';
    const encoder = await createEncoder(chooseFormat({}), await voice.open(name), () => {});
    await voice.synthesize(text, name, 1, (samples) => encoder.push(samples));
  }
}

/** The engines that this host has, for the health page. */
export function engines(): string[] {
  return [installed[0], flite, espeak].flatMap((voice) => (voice === undefined ? [] : [voice.name]));
}

export default async function speak(task: SpeakTask): Promise<void> {
  try {
    await speakTo(task.port, task);
  } catch (error) {
    if (!(error instanceof EngineFailure)) throw error;
    const { code, message, cause } = error;
    task.port.postMessage({ failed: code, message, cause } satisfies SpeakMessage);
  } finally {
    task.port.postMessage({ end: true } satisfies SpeakMessage);
    task.port.close();
  }
}

async function speakTo(port: MessagePort, task: SpeakTask): Promise<void> {
  const post = (message: SpeakMessage) => port.postMessage(message);
  let stopped = false;
  port.once('close', () => {
    stopped = true;
  });
  const chosen = chooseVoice(task);
  if (chosen === undefined) {
    const what = task.asked.name ?? task.asked.language;
    throw new EngineFailure('no_engine', `No voice for ${what} is installed on this host.`);
  }
  const { engine, voice, isAsked } = chosen;
  const rate = await engine.open(voice);
  const emit = (bytes: Uint8Array) => {
    if (bytes.length > 0) post({ bytes });
  };
  const encoder = await createEncoder(task.format, rate, emit, task.ffmpeg);
  post({ engine: engine.name, voice, isAsked });
  const onSamples = (samples: Int16Array) => encoder.push(samples);
  try {
    for (const piece of task.pieces) {
      if ('pauseMs' in piece) onSamples(new Int16Array(Math.round((rate * piece.pauseMs) / 1000)));
      else await engine.synthesize(piece.text, voice, piece.speed, onSamples);
      await encoder.taken();
      // lets the port say that the listener has gone
      await new Promise((resolve) => setImmediate(resolve));
      if (stopped) return;
    }
    await encoder.end();
  } finally {
    encoder.close();
  }
}

interface Chosen {
  engine: Voice;
  voice: string;
  isAsked: boolean;
}

function chooseVoice({ asked, engine, standardVoice }: SpeakTask): Chosen | undefined {
  for (const candidate of installed) {
    const voice = asked.model === undefined ? undefined : candidate.voiceFor(asked.model);
    if (voice !== undefined) return { engine: candidate, voice, isAsked: true };
  }
  const preferred = asked.engine ?? engine;
  const programs = preferred === 'espeak-ng' ? [espeak, flite] : [flite, espeak];
  const takesInstalled = preferred === 'auto' || preferred === 'sherpa-onnx';
  const order = takesInstalled ? [...installed, ...programs] : programs;
  const candidates = asked.engine === undefined ? order : order.filter((voice) => voice?.name === asked.engine);
  for (const candidate of candidates) {
    const standard = standardVoice !== '' && asked.language === 'en' ? candidate?.voiceFor(standardVoice) : undefined;
    const voice = (asked.name && candidate?.voiceFor(asked.name)) ?? standard ?? candidate?.voiceFor(asked.language);
    if (candidate !== undefined && voice !== undefined && voice !== '')
      return { engine: candidate, voice, isAsked: false };
  }
  return undefined;
}
