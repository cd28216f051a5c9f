/**
 * What every engine does, wherever it runs: audio to words, text to audio, text to insight.
 */
import type { InsightOptions } from '../options/insight.ts';
import type { ListenOptions } from '../options/listen.ts';
import type { SpeakOptions } from '../options/speak.ts';
import type { SpokenPart } from '../options/ssml.ts';

/** Audio on its way in. */
export interface AudioSource {
  body: ReadableStream<Uint8Array>;
  /** Of the caller or the remote server; may be empty. */
  type: string;
  /** Usual ending of a file's name, such as `wav`, where the container was recognized. */
  extension?: string | undefined;
  /** Bytes, where known. */
  length?: number | undefined;
  /** Aborted with the reason when the body breaks off, where that is known here. */
  broken?: AbortSignal | undefined;
}

export interface ListenJob {
  audio: AudioSource;
  options: ListenOptions;
  /** Audio that the payment is good for, in milliseconds over all channels. */
  maxBillableMs: number;
  /** Who asks, for its turn in the queue and for what is refused. */
  caller: Caller;
  signal: AbortSignal;
}

/** Undefined where the host does not say. */
export interface Caller {
  payer: string | undefined;
  address: string | undefined;
}

export interface Word {
  word: string;
  /** Seconds. */
  start: number;
  end: number;
  /** 0 to 1. */
  confidence: number;
  punctuated?: string | undefined;
  /** From 0, where speakers were told apart. */
  speaker?: number | undefined;
}

/** What was heard, before it is put into Deepgram's shape. */
export interface Transcript {
  kind: 'transcript';
  sha256: string;
  /** Of one channel. */
  durationMs: number;
  billableMs: number;
  language: string | undefined;
  model: { name: string; version: string; arch: string };
  punctuates: boolean;
  channels: { words: Word[] }[];
  warnings: string[];
}

/** An answer that is in Deepgram's shape already. */
export interface FinishedAnswer {
  kind: 'finished';
  body: Record<string, unknown>;
  billableMs: number;
}

export interface ListenEngine {
  readonly name: string;
  /** @throws SpeechFailure */
  listen(job: ListenJob): Promise<Transcript | FinishedAnswer>;
}

export interface SpeakJob {
  text: string;
  /** What the text's SSML says; undefined: it is no SSML. Only engines that read it are given it. */
  parts?: SpokenPart[] | undefined;
  options: SpeakOptions;
  signal: AbortSignal;
}

export interface Speech {
  /** Bytes where all of it is here already: the host can then settle after it has the whole answer. */
  body: ReadableStream<Uint8Array> | Uint8Array<ArrayBuffer>;
  contentType: string;
  model: string;
  warnings: string[];
}

export interface SpeakEngine {
  readonly name: string;
  readonly readsSsml: boolean;
  /** @throws SpeechFailure */
  speak(job: SpeakJob): Promise<Speech>;
}

export interface ReadJob {
  text: string;
  language: string | undefined;
  options: InsightOptions;
  signal: AbortSignal;
}

/** Deepgram's flat shape. */
export interface Insight {
  /** A score from 0 to 1 and the segments that it is made of, where the engine tells. */
  summary?: { text: string; confidence_score?: number; sources?: unknown[] } | undefined;
  topics?: { segments: unknown[] } | undefined;
  intents?: { segments: unknown[] } | undefined;
  sentiments?: { segments: unknown[]; average: unknown } | undefined;
  /** Words of the text. */
  words: number;
  model: string;
  warnings: string[];
}

export interface ReadEngine {
  readonly name: string;
  /** @throws SpeechFailure */
  read(job: ReadJob): Promise<Insight>;
}
