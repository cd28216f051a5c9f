/**
 * Speaks text through the speaking threads and hands the bytes on as they are made.
 */
import { MessageChannel } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { EngineFailure } from '../failure.ts';
import { byFfmpeg, chooseFormat, type FormatRequest, needsFfmpeg, type SpeechFormat } from './format.ts';
import { cutSentences } from './sentences.ts';
import type { SpeakMessage, SpeakPiece, SpeakTask, SpokenBy } from './thread.ts';
import { readModel, type VoiceEngine } from './voice.ts';

export type SpokenPart = { text: string; rate?: number | undefined } | { pauseMs: number };

export interface SpeakRequest extends FormatRequest {
  /** Alone, or with pauses and rates. */
  text: string | SpokenPart[];
  model?: string | undefined;
  speed?: number | undefined;
}

/** What is known before the first byte. */
export interface SpeechStart {
  engine: string;
  voice: string;
  format: SpeechFormat;
  warnings: string[];
}

export interface SpeechSink {
  start(start: SpeechStart): void;
  write(bytes: Uint8Array): void;
}

const SLOWEST = 0.7;
const FASTEST = 1.5;
const LONGEST_MS = 60_000;

export class Speaker {
  readonly #threads: Piscina;
  readonly #engine: 'auto' | VoiceEngine;
  readonly #standardVoice: string;
  readonly #ffmpeg: string | undefined;

  constructor(threads: Piscina, settings: { engine: 'auto' | VoiceEngine; voice: string }, ffmpeg: string | undefined) {
    this.#threads = threads;
    this.#ffmpeg = ffmpeg;
    this.#engine = settings.engine;
    this.#standardVoice = settings.voice;
  }

  /**
   * `sink.start` is called with the first bytes at hand, so that what fails before them can still be an error answer.
   * @throws EngineFailure unsupported_option, bad_request, no_engine
   */
  async speak(request: SpeakRequest, sink: SpeechSink, signal: AbortSignal): Promise<void> {
    const format = chooseFormat(request);
    if (byFfmpeg(format) && this.#ffmpeg === undefined) throw needsFfmpeg(format.encoding);
    const asked = readModel(request.model);
    const pieces = piecesOf(request);
    if (!pieces.some((piece) => 'text' in piece))
      throw new EngineFailure('bad_request', 'The text holds nothing to speak.');
    const { port1, port2 } = new MessageChannel();
    let voice: SpokenBy | undefined;
    let started = false;
    let failure: EngineFailure | undefined;
    const ended = Promise.withResolvers<void>();
    port1.once('close', ended.resolve);
    port1.on('message', (message: SpeakMessage) => {
      if ('engine' in message) voice = message;
      else if ('failed' in message) {
        failure = new EngineFailure(message.failed, message.message);
        failure.cause = message.cause;
      } else if ('end' in message) ended.resolve();
      else {
        if (!started && voice !== undefined) {
          started = true;
          const { engine, isAsked } = voice;
          const warnings = warningsOf(request, asked.substituted && !isAsked, voice.voice);
          sink.start({ engine, voice: voice.voice, format, warnings });
        }
        sink.write(message.bytes);
      }
    });
    const hangUp = () => port1.close();
    signal.addEventListener('abort', hangUp, { once: true });
    try {
      const task: SpeakTask = {
        pieces,
        asked,
        format,
        ffmpeg: this.#ffmpeg,
        engine: this.#engine,
        standardVoice: this.#standardVoice,
        port: port2,
      };
      // a thread that hangs is ended and replaced
      await this.#threads.run(task, { transferList: [port2], signal: AbortSignal.timeout(LONGEST_MS) });
      await ended.promise;
    } finally {
      signal.removeEventListener('abort', hangUp);
      port1.close();
    }
    signal.throwIfAborted();
    if (failure !== undefined) throw failure;
    if (!started) throw new EngineFailure('bad_request', 'The text holds nothing to speak.');
  }
}

/** What a thread does one after the other. */
function piecesOf({ text, speed = 1 }: SpeakRequest): SpeakPiece[] {
  const parts = typeof text === 'string' ? [{ text }] : text;
  return parts.flatMap((part): SpeakPiece[] =>
    'pauseMs' in part
      ? [part]
      : cutSentences(part.text).map((piece) => ({ text: piece, speed: within(speed * (part.rate ?? 1)) })),
  );
}

function within(speed: number): number {
  return Math.min(FASTEST, Math.max(SLOWEST, speed));
}

function warningsOf(request: SpeakRequest, substituted: boolean, voice: string): string[] {
  const warnings: string[] = [];
  if (substituted) warnings.push(`model=${request.model}: spoken by ${voice}`);
  const { speed = 1, text } = request;
  const rates = typeof text === 'string' ? [] : text.map((part) => ('rate' in part ? (part.rate ?? 1) : 1));
  if ([1, ...rates].some((rate) => within(speed * rate) !== speed * rate)) {
    warnings.push(`speed=${speed}: between ${SLOWEST} and ${FASTEST} here`);
  }
  return warnings;
}
