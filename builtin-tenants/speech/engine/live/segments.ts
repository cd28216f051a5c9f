/**
 * Cuts the audio of one channel into utterances, as it comes. Pure: it knows no clock but that of the samples, and no
 * recognizer. Positions and lengths are samples of 16 kHz from the start of the stream.
 */
import { quietestPlace } from '../listen/pieces.ts';
import { FRAME, Voice } from './voice.ts';

const RATE = 16_000;
const MS = RATE / 1000;
/** Kept from before the first loud frame: words begin softly. */
const LEAD = 300 * MS;
/** Loud frames in a row that begin an utterance: a click is shorter. */
const ATTACK_FRAMES = 3;
/** Longer utterances are cut where they are quietest: what a recognizer needs grows with what it is given at once. */
const LONGEST = 12 * RATE;
/** Silence that ends a piece where no endpointing was asked for. */
const PAUSE = 1000 * MS;

export interface Utterance {
  start: number;
  samples: Int16Array;
}

export type Cut =
  | { kind: 'started'; at: number }
  /** `isEnd`: it ended by silence; otherwise it goes on. */
  | { kind: 'ended'; utterance: Utterance; isEnd: boolean };

export class Segmenter {
  readonly #voice = new Voice();
  readonly #silence: number;
  readonly #endpoints: boolean;
  /** Samples that do not fill a frame yet. */
  #rest = new Int16Array(0);
  /** Of the utterance; before it, the last of the silence. */
  #kept = new Int16Array(RATE);
  #length = 0;
  #start = 0;
  #speaking = false;
  #loud = 0;
  /** Where the last voice ended. */
  #voiceEnd = 0;

  /** @param endpointingMs 0: no silence ends an utterance for the caller, but pieces are cut at pauses all the same */
  constructor(endpointingMs: number) {
    this.#endpoints = endpointingMs > 0;
    this.#silence = endpointingMs > 0 ? endpointingMs * MS : PAUSE;
  }

  /** Where the audio that was given ends. */
  get position(): number {
    return this.#start + this.#length + this.#rest.length;
  }

  get isSpeaking(): boolean {
    return this.#speaking;
  }

  push(samples: Int16Array): Cut[] {
    const cuts: Cut[] = [];
    const data = new Int16Array(this.#rest.length + samples.length);
    data.set(this.#rest);
    data.set(samples, this.#rest.length);
    this.#rest = new Int16Array(0);
    let at = 0;
    for (; at + FRAME <= data.length; at += FRAME) this.#frame(data.subarray(at, at + FRAME), cuts);
    this.#rest = data.slice(at);
    return cuts;
  }

  /** What was said of the utterance so far. */
  current(): Utterance | undefined {
    return this.#speaking ? { start: this.#start, samples: this.#kept.slice(0, this.#length) } : undefined;
  }

  /** Ends the utterance now, with all that was given. */
  flush(): Utterance | undefined {
    this.#append(this.#rest);
    this.#rest = new Int16Array(0);
    const utterance = this.current();
    this.#begin(this.#length);
    this.#speaking = false;
    this.#loud = 0;
    return utterance;
  }

  #frame(frame: Int16Array, cuts: Cut[]): void {
    this.#append(frame);
    const isVoice = this.#voice.isVoice(frame);
    this.#loud = isVoice ? this.#loud + 1 : 0;
    const end = this.#start + this.#length;
    if (isVoice) this.#voiceEnd = end;
    if (!this.#speaking) {
      if (this.#loud < ATTACK_FRAMES) {
        // no more of the silence is needed than what leads up to a word
        if (this.#length > 2 * LEAD) this.#begin(this.#length - LEAD);
        return;
      }
      this.#speaking = true;
      const from = Math.max(this.#start, end - ATTACK_FRAMES * FRAME - LEAD);
      this.#begin(from - this.#start);
      cuts.push({ kind: 'started', at: end - ATTACK_FRAMES * FRAME });
      return;
    }
    if (end - this.#voiceEnd >= this.#silence) {
      this.#speaking = false;
      cuts.push(this.#take(this.#length, this.#endpoints));
    } else if (this.#length >= LONGEST) {
      const loudness = Float32Array.from(this.#kept.subarray(0, this.#length), (sample) => sample / 32768);
      cuts.push(this.#take(quietestPlace(loudness, RATE), false));
    }
  }

  #take(length: number, isEnd: boolean): Cut {
    const utterance = { start: this.#start, samples: this.#kept.slice(0, length) };
    this.#begin(length);
    return { kind: 'ended', utterance, isEnd };
  }

  /** Forgets the first `length` samples. */
  #begin(length: number): void {
    this.#kept.copyWithin(0, length, this.#length);
    this.#length -= length;
    this.#start += length;
  }

  #append(samples: Int16Array): void {
    const needed = this.#length + samples.length;
    if (needed > this.#kept.length) {
      const larger = new Int16Array(Math.max(needed, this.#kept.length * 2));
      larger.set(this.#kept.subarray(0, this.#length));
      this.#kept = larger;
    }
    this.#kept.set(samples, this.#length);
    this.#length = needed;
  }
}
