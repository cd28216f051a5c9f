/**
 * One channel of a live stream: its audio is cut into utterances, each is heard when it has ended and, where interim
 * results are wanted, while it goes on. Results come in the order of the audio.
 */
import type { HeardWord, Transcription } from '../listen/transcriber.ts';
import type { LiveRecognizer } from './recognizer.ts';
import type { LiveRequest } from './request.ts';
import { Segmenter, type Utterance } from './segments.ts';

const RATE = 16_000;
/** Between two interim results at least, ms of time and of audio. */
const INTERIM_MS = 120;
/** Interim results take this share of the recognizer's time at most: the pause after one grows with what it took. */
const INTERIM_PAUSES = 4;
/** Audio that waits to be heard; beyond it no more is taken. */
const MOST_WAITING = 30 * RATE;

export interface ChannelOptions {
  /** Of the stream's channels, from 0. */
  index: number;
  channels: number;
  request: LiveRequest;
  recognizer: LiveRecognizer;
  signal: AbortSignal;
  /** A message for the caller. */
  say(message: Record<string, unknown>): void;
  /** What the recognizer could not tell. */
  warn(warning: string): void;
  failed(error: unknown): void;
}

export class Channel {
  readonly #options: ChannelOptions;
  readonly #segments: Segmenter;
  #finals: Promise<void> = Promise.resolve();
  /** Utterances that ended and are not heard yet; samples of them. */
  #pending = 0;
  #waiting = 0;
  /** Stands for the utterance that goes on. */
  #utterance: object = {};
  #interimRuns = false;
  #interimTimer: NodeJS.Timeout | undefined;
  /** Of the utterance, when it was last heard: samples. */
  #interimAt = 0;
  #notBefore = 0;
  #lastWordEnd: number | undefined;

  constructor(options: ChannelOptions) {
    this.#options = options;
    this.#segments = new Segmenter(options.request.endpointingMs);
  }

  /** Resolves when there is room for more. */
  async push(samples: Int16Array): Promise<void> {
    for (const cut of this.#segments.push(samples)) {
      if (cut.kind === 'ended') this.#hear(cut.utterance, { isEnd: cut.isEnd, isFinalize: false });
      else if (this.#options.request.vadEvents)
        this.#options.say({ type: 'SpeechStarted', channel: [this.#options.index], timestamp: cut.at / RATE });
    }
    this.#interim();
    this.#utteranceEnd();
    while (this.#waiting > MOST_WAITING && !this.#options.signal.aborted) await this.#finals;
  }

  /** Hears all that was given. Resolves when it was said. */
  async flush(isFinalize: boolean): Promise<void> {
    const at = this.#segments.position;
    const utterance = this.#segments.flush() ?? { start: at, samples: new Int16Array(0) };
    if (isFinalize || utterance.samples.length > 0) this.#hear(utterance, { isEnd: false, isFinalize });
    await this.#finals;
  }

  close(): void {
    clearTimeout(this.#interimTimer);
    this.#options.recognizer.forget(this.#utterance);
  }

  #hear(utterance: Utterance, how: { isEnd: boolean; isFinalize: boolean }): void {
    const of = this.#utterance;
    this.#utterance = {};
    this.#interimAt = 0;
    this.#pending += 1;
    this.#waiting += utterance.samples.length;
    this.#finals = this.#finals.then(async () => {
      try {
        const heard = utterance.samples.length === 0 ? { words: [] } : await this.#recognize(utterance, of, true);
        const words = this.#say(utterance, heard, { isFinal: true, ...how });
        this.#lastWordEnd = words.at(-1)?.end ?? this.#lastWordEnd;
      } catch (error) {
        if (!this.#options.signal.aborted) this.#options.failed(error);
      } finally {
        this.#options.recognizer.forget(of);
        this.#pending -= 1;
        this.#waiting -= utterance.samples.length;
      }
      this.#utteranceEnd();
    });
  }

  #interim(): void {
    const { request, recognizer, signal } = this.#options;
    // a model that streams hears ahead, whether or not it is told
    if (
      !(request.interim || recognizer.streams) ||
      this.#interimRuns ||
      this.#pending > 0 ||
      !this.#segments.isSpeaking ||
      signal.aborted
    )
      return;
    const wait = this.#notBefore - performance.now();
    if (wait > 0) {
      this.#interimTimer ??= setTimeout(() => {
        this.#interimTimer = undefined;
        this.#interim();
      }, wait);
      return;
    }
    const utterance = this.#segments.current();
    const least = this.#interimAt + (INTERIM_MS * RATE) / 1000;
    if (utterance === undefined || utterance.samples.length < least) return;
    this.#interimRuns = true;
    this.#interimAt = utterance.samples.length;
    const of = this.#utterance;
    const began = performance.now();
    this.#recognize(utterance, of, false)
      .then((heard) => {
        const isStill = of === this.#utterance && this.#pending === 0;
        if (request.interim && isStill && heard.words.length > 0)
          this.#say(utterance, heard, { isFinal: false, isEnd: false, isFinalize: false });
      })
      // the utterance will be heard again when it ends, and fails then if it does
      .catch(() => {})
      .finally(() => {
        this.#interimRuns = false;
        const took = performance.now() - began;
        this.#notBefore = performance.now() + Math.max(INTERIM_MS, took * INTERIM_PAUSES * (recognizer.isWarm ? 1 : 2));
        this.#interim();
      });
  }

  #recognize({ samples }: Utterance, utterance: object, isEnd: boolean): Promise<Transcription> {
    const { recognizer, request, signal } = this.#options;
    return recognizer.hear({ samples, utterance, isEnd, language: request.language, signal });
  }

  #say(
    { start, samples }: Utterance,
    heard: Transcription,
    { isFinal, isEnd, isFinalize }: { isFinal: boolean; isEnd: boolean; isFinalize: boolean },
  ) {
    const { index, channels, request, recognizer, say, warn } = this.#options;
    for (const warning of heard.warnings ?? []) warn(warning);
    const from = start / RATE;
    const { transcriber } = recognizer;
    const words = heard.words.map((word) => wireWord(word, from, request.punctuate && transcriber.punctuates));
    const confidence = words.length === 0 ? 0 : words.reduce((sum, word) => sum + word.confidence, 0) / words.length;
    const transcript = words.map((word) => word.punctuated_word ?? word.word).join(' ');
    say({
      type: 'Results',
      channel_index: [index, channels],
      duration: rounded(samples.length / RATE),
      start: rounded(from),
      is_final: isFinal,
      speech_final: isEnd,
      channel: {
        alternatives: [
          {
            transcript,
            confidence: rounded(confidence),
            words,
            ...(heard.language === undefined ? {} : { languages: [heard.language] }),
          },
        ],
      },
      metadata: {
        request_id: request.requestId,
        model_info: { name: transcriber.model, version: transcriber.version, arch: transcriber.arch },
        model_uuid: transcriber.model,
      },
      from_finalize: isFinalize,
    });
    return words;
  }

  /** The silence counts from the last word, also where noise goes on. */
  #utteranceEnd(): void {
    const { index, channels, request, say } = this.#options;
    if (request.utteranceEndMs === undefined || this.#lastWordEnd === undefined) return;
    if (this.#pending > 0 || this.#segments.isSpeaking) return;
    if (this.#segments.position / RATE - this.#lastWordEnd < request.utteranceEndMs / 1000) return;
    say({ type: 'UtteranceEnd', channel: [index, channels], last_word_end: this.#lastWordEnd });
    this.#lastWordEnd = undefined;
  }
}

function wireWord({ word, start, end, confidence, punctuated }: HeardWord, from: number, isWritten: boolean) {
  const base = { word, start: rounded(from + start), end: rounded(from + end), confidence: rounded(confidence) };
  return isWritten ? { ...base, punctuated_word: punctuated ?? word } : { ...base, punctuated_word: undefined };
}

function rounded(value: number): number {
  return Number(value.toFixed(6));
}
