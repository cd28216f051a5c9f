/**
 * A worker thread that speaks: keeps the voices loaded, makes one piece after the other and posts its bytes at once.
 */
import { type MessagePort, workerData } from 'node:worker_threads';
import { createEncoder } from './encode.ts';
import { openEspeak } from './espeak.ts';
import { openFlite } from './flite.ts';
import { chooseFormat, type SpeechFormat } from './format.ts';
import type { AskedVoice, Voice } from './voice.ts';

/** What a thread is started with. */
export interface SpeakSetup {
  /** Folder for text and sound while they are worked on. */
  spool: string;
}

export interface SpeakTask {
  pieces: string[];
  asked: AskedVoice;
  speed: number;
  format: SpeechFormat;
  /** Preference of the operator. */
  engine: 'auto' | 'espeak-ng' | 'flite';
  /** Voice where the caller names none that is here. */
  standardVoice: string;
  port: MessagePort;
}

/** What is posted on the port: first the voice, then bytes; or why there is none. Always an end. */
export type SpeakMessage = { engine: string; voice: string } | { bytes: Uint8Array } | { fix: string } | { end: true };

const espeak = await openEspeak();
const flite = await openFlite((workerData as SpeakSetup).spool);
await warmUp();

/** The first words compile the code of voice and encoder: let that happen before a caller waits. */
async function warmUp(): Promise<void> {
  const text = 'The quick brown fox jumps over the lazy dog, and nobody has to wait for it to be compiled.';
  for (const voice of [flite, espeak]) {
    if (voice === undefined) continue;
    const encoder = await createEncoder(chooseFormat({}), voice.sampleRate);
    voice.synthesize(text, voice.voiceFor('en') ?? '', 1, (samples) => encoder.push(samples));
  }
}

/** The voices that this host has, for the health page. */
export function voices(): string[] {
  return [flite, espeak].flatMap((voice) => (voice === undefined ? [] : [voice.name]));
}

export default async function speak(task: SpeakTask): Promise<void> {
  try {
    await speakTo(task.port, task);
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
    post({ fix: `No voice for ${task.asked.name ?? task.asked.language} is installed on this host.` });
    return;
  }
  post({ engine: chosen.engine.name, voice: chosen.voice });
  const encoder = await createEncoder(task.format, chosen.engine.sampleRate);
  for (const piece of task.pieces) {
    if (stopped) return;
    chosen.engine.synthesize(piece, chosen.voice, task.speed, (samples) => {
      const bytes = encoder.push(samples);
      if (bytes.length > 0) post({ bytes });
    });
    // lets the port say that the listener has gone
    await new Promise((resolve) => setImmediate(resolve));
  }
  post({ bytes: encoder.end() });
}

function chooseVoice({ asked, engine, standardVoice }: SpeakTask): { engine: Voice; voice: string } | undefined {
  const preferred = asked.engine ?? engine;
  const order = preferred === 'espeak-ng' ? [espeak, flite] : [flite, espeak];
  const candidates = asked.engine === undefined ? order : order.filter((voice) => voice?.name === asked.engine);
  for (const candidate of candidates) {
    const standard = standardVoice !== '' && asked.language === 'en' ? candidate?.voiceFor(standardVoice) : undefined;
    const voice = (asked.name && candidate?.voiceFor(asked.name)) ?? standard ?? candidate?.voiceFor(asked.language);
    if (candidate !== undefined && voice !== undefined && voice !== '') return { engine: candidate, voice };
  }
  return undefined;
}
