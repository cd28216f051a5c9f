/**
 * Hears pieces of audio for live streams. With sherpa-onnx's package the model stays loaded in a process of its own and
 * a piece takes milliseconds; every other recognizer is started anew for each piece, as for files, which is slower.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { wavHeader } from '../audio/wav.ts';
import { describeModelIn, modelConfiguration, parseSherpaOnnx } from '../listen/sherpa-onnx.ts';
import type { Transcriber, Transcription } from '../listen/transcriber.ts';
import { NativeProcess } from '../native-process.ts';

export interface Piece {
  /** 16 kHz. */
  samples: Int16Array;
  language: string | undefined;
  signal: AbortSignal;
}

export interface LiveRecognizer {
  readonly transcriber: Transcriber;
  /** Whether a piece takes milliseconds. */
  readonly isWarm: boolean;
  /**
   * Times of the words count from the piece's beginning.
   * @param isUrgent before all that are not; those may be overtaken for a while
   * @throws EngineFailure; the signal's reason
   */
  hear(piece: Piece, isUrgent: boolean): Promise<Transcription>;
  /** Resolves when a piece would be heard at once. @throws EngineFailure internal */
  prepare(): Promise<void>;
  /** Gives back what it keeps, until it is needed again. */
  close(): void;
}

const RATE = 16_000;
/** Longest work on one piece, ms. */
const PIECE_MS = 60_000;
const PROCESS = fileURLToPath(new URL('sherpa-onnx-process.ts', import.meta.url));

interface Work extends Piece {
  isUrgent: boolean;
  resolve(heard: Transcription): void;
  reject(reason: unknown): void;
}

/** A queue of pieces, of which `width` are worked on at a time; urgent ones first. */
abstract class Queue implements LiveRecognizer {
  abstract readonly isWarm: boolean;
  readonly transcriber: Transcriber;
  readonly #width: number;
  readonly #waiting: Work[] = [];
  #running = 0;

  constructor(transcriber: Transcriber, width: number) {
    this.transcriber = transcriber;
    this.#width = width;
  }

  abstract work(piece: Piece): Promise<Transcription>;
  abstract prepare(): Promise<void>;
  abstract close(): void;

  hear(piece: Piece, isUrgent: boolean): Promise<Transcription> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ...piece, isUrgent, resolve, reject });
      this.#next();
    });
  }

  #next(): void {
    while (this.#running < this.#width && this.#waiting.length > 0) {
      const urgent = this.#waiting.findIndex(({ isUrgent }) => isUrgent);
      const [work] = this.#waiting.splice(Math.max(0, urgent), 1);
      if (work === undefined) return;
      if (work.signal.aborted) {
        work.reject(work.signal.reason);
        continue;
      }
      this.#running += 1;
      this.work(work)
        .then(work.resolve, work.reject)
        .finally(() => {
          this.#running -= 1;
          this.#next();
        });
    }
  }
}

/** Starts the recognizer's program for each piece. */
class ColdRecognizer extends Queue {
  readonly isWarm = false;
  readonly #folder: string;

  /** @param folder for pieces while they are worked on */
  constructor(transcriber: Transcriber, width: number, folder: string) {
    super(transcriber, width);
    this.#folder = folder;
  }

  async work({ samples, language, signal }: Piece): Promise<Transcription> {
    const folder = join(this.#folder, randomUUID());
    await mkdir(folder, { recursive: true, mode: 0o700 });
    try {
      const file = join(folder, 'piece.wav');
      const data = Buffer.from(samples.buffer, samples.byteOffset, samples.byteLength);
      await writeFile(file, Buffer.concat([wavHeader(RATE, 1, data.length), data]), { mode: 0o600 });
      const durationMs = (samples.length * 1000) / RATE;
      return await this.transcriber.transcribe({ file, folder, durationMs, language, signal, timeoutMs: PIECE_MS });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  async prepare(): Promise<void> {}

  close(): void {}
}

/** Keeps the model loaded. The process is started when it is needed, and again after it has died. */
class WarmRecognizer extends Queue {
  readonly isWarm = true;
  readonly #config: object;
  #process: NativeProcess<true, object> | undefined;

  constructor(transcriber: Transcriber, config: object) {
    // its work is done one piece at a time: more at once would only wait where nobody can be overtaken
    super(transcriber, 1);
    this.#config = config;
  }

  async work({ samples }: Piece): Promise<Transcription> {
    const result = await this.#running().ask({ samples });
    const seconds = samples.length / RATE;
    return parseSherpaOnnx(JSON.stringify({ text: '', ...result, from: 0, to: seconds }), seconds * 1000);
  }

  async prepare(): Promise<void> {
    await this.#running().ready;
  }

  close(): void {
    this.#process?.end();
    this.#process = undefined;
  }

  #running(): NativeProcess<true, object> {
    if (this.#process === undefined || this.#process.isOver)
      this.#process = new NativeProcess(PROCESS, this.#config, 'the recognizer');
    return this.#process;
  }
}

/** @param folder for pieces while they are worked on @param width pieces at a time, where each is a program of its own */
export async function openLiveRecognizer(
  transcriber: Transcriber,
  { model, program, threads, jobs }: { model: string; program: string; threads: number; jobs: number },
  folder: string,
): Promise<LiveRecognizer> {
  const described =
    transcriber.arch === 'sherpa-onnx' && program === ''
      ? await describeModelIn(model).catch(() => undefined)
      : undefined;
  if (described === undefined) return new ColdRecognizer(transcriber, jobs, folder);
  return new WarmRecognizer(transcriber, modelConfiguration(described, { threads }));
}
