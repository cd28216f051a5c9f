/**
 * Hears utterances of live streams. With sherpa-onnx's package the model stays loaded in a process of its own and a
 * piece takes milliseconds, and a model that streams hears each sample once; every other recognizer is started anew for each piece, as for files, which is slower.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { wavHeader } from '../audio/wav.ts';
import { describeModelIn, jobOf, parseSherpaOnnx } from '../listen/sherpa-onnx.ts';
import type { SherpaOnnxJob } from '../listen/sherpa-onnx-wire.ts';
import type { Transcriber, Transcription } from '../listen/transcriber.ts';
import { NativeProcess } from '../native-process.ts';
import type { LiveWork } from './sherpa-onnx-process.ts';

export interface Piece {
  /** 16 kHz: all of the utterance so far. */
  samples: Int16Array;
  /** The same object for each piece of one utterance. */
  utterance: object;
  /** Nothing comes after it. */
  isEnd: boolean;
  language: string | undefined;
  signal: AbortSignal;
}

export interface LiveRecognizer {
  readonly transcriber: Transcriber;
  /** Whether a piece takes milliseconds. */
  readonly isWarm: boolean;
  /** Whether it hears an utterance while it comes: then each of its samples is heard once, however often it is asked. */
  readonly streams: boolean;
  /**
   * Times of the words count from the piece's beginning.
   * The ends of utterances come before all else, which may be overtaken for a while.
   * @throws EngineFailure; the signal's reason
   */
  hear(piece: Piece): Promise<Transcription>;
  /** An utterance of which no end comes. */
  forget(utterance: object): void;
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
  resolve(heard: Transcription): void;
  reject(reason: unknown): void;
}

/** A queue of pieces, of which `width` are worked on at a time. */
abstract class Queue implements LiveRecognizer {
  abstract readonly isWarm: boolean;
  abstract readonly streams: boolean;
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

  forget(_utterance: object): void {}

  hear(piece: Piece): Promise<Transcription> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ...piece, resolve, reject });
      this.#next();
    });
  }

  #next(): void {
    while (this.#running < this.#width && this.#waiting.length > 0) {
      const urgent = this.#waiting.findIndex(({ isEnd }) => isEnd);
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
  readonly streams = false;
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

/** What a process knows of an utterance. */
interface Begun {
  by: NativeProcess<true, object>;
  number: number;
  /** Samples that it was given. */
  given: number;
}

/** Keeps the model loaded. The process is started when it is needed, and again after it has died. */
class WarmRecognizer extends Queue {
  readonly isWarm = true;
  readonly streams: boolean;
  readonly #job: Omit<SherpaOnnxJob, 'file'>;
  readonly #begun = new WeakMap<object, Begun>();
  readonly #over = new WeakSet<object>();
  #process: NativeProcess<true, object> | undefined;
  #utterances = 0;

  constructor(transcriber: Transcriber, job: Omit<SherpaOnnxJob, 'file'>) {
    // its work is done one piece at a time: more at once would only wait where nobody can be overtaken
    super(transcriber, 1);
    this.#job = job;
    this.streams = job.streams;
  }

  async work({ samples, utterance, isEnd }: Piece): Promise<Transcription> {
    // its end came before: that is heard first
    if (this.#over.has(utterance)) return { words: [] };
    const process = this.#running();
    const begun = this.#begunBy(process, utterance, samples.length);
    const work: LiveWork = {
      samples: samples.subarray(begun.given),
      utterance: begun.number,
      // a model that does not stream hears all of it anew
      isEnd: isEnd || !this.streams,
    };
    begun.given = samples.length;
    if (isEnd) this.#over.add(utterance);
    if (work.isEnd) this.#begun.delete(utterance);
    const result = await process.ask(work);
    const seconds = samples.length / RATE;
    return parseSherpaOnnx(JSON.stringify({ text: '', ...result, from: 0, to: seconds }), seconds * 1000);
  }

  override forget(utterance: object): void {
    this.#over.add(utterance);
    this.#end(utterance);
  }

  #end(utterance: object): void {
    const begun = this.#begun.get(utterance);
    this.#begun.delete(utterance);
    if (begun === undefined || begun.by !== this.#process || begun.by.isOver) return;
    const work: LiveWork = { samples: new Int16Array(0), utterance: begun.number, isEnd: true };
    begun.by.ask(work).catch(() => {});
  }

  async prepare(): Promise<void> {
    await this.#running().ready;
  }

  close(): void {
    this.#process?.end();
    this.#process = undefined;
  }

  /** An utterance that was cut before what was given of it begins anew. */
  #begunBy(by: NativeProcess<true, object>, utterance: object, length: number): Begun {
    const known = this.#begun.get(utterance);
    if (known?.by === by && known.given <= length) return known;
    if (known !== undefined) this.#end(utterance);
    const begun = { by, number: this.#utterances++, given: 0 };
    this.#begun.set(utterance, begun);
    return begun;
  }

  #running(): NativeProcess<true, object> {
    if (this.#process === undefined || this.#process.isOver)
      this.#process = new NativeProcess(PROCESS, this.#job, 'the recognizer');
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
  return new WarmRecognizer(transcriber, jobOf(described, { threads }));
}
