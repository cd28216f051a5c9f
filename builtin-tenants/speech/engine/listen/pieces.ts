/**
 * Cuts audio into pieces that a recognizer takes at once. What models need grows with the length of a piece, often with
 * its square, and whisper hears no more than 30 s: in pieces an hour needs no more memory than half a minute.
 */
import { open } from 'node:fs/promises';
import { readWavFacts } from '../audio/wav.ts';

export interface Piece {
  /** Seconds from the start of the audio. */
  from: number;
  to: number;
  sampleRate: number;
  /** From -1 to 1. */
  samples: Float32Array;
}

const LONGEST_SECONDS = 28;
/** Cut where it is quietest, in the last so many seconds of a piece. */
const CHOICE_SECONDS = 8;
/** A breath between words. */
const GAP_SECONDS = 0.2;
const STEP_SECONDS = 0.02;

/** @param file 16-bit mono WAV with a header of 44 bytes, as the decoders write it */
export async function* cutIntoPieces(file: string): AsyncGenerator<Piece> {
  const { sampleRate, frames, start } = await readWavFacts(file);
  const longest = LONGEST_SECONDS * sampleRate;
  const handle = await open(file);
  try {
    for (let first = 0; first < frames; ) {
      const count = Math.min(longest, frames - first);
      const bytes = Buffer.alloc(count * 2);
      await handle.read(bytes, 0, bytes.length, start + first * 2);
      const samples = Float32Array.from({ length: count }, (_, at) => bytes.readInt16LE(at * 2) / 32768);
      const length = first + count < frames ? quietestPlace(samples, sampleRate) : count;
      const [from, to] = [first / sampleRate, (first + length) / sampleRate];
      yield { from, to, sampleRate, samples: samples.subarray(0, length) };
      first += length;
    }
  } finally {
    await handle.close();
  }
}

/** @returns the middle of the quietest gap near the end, in samples */
export function quietestPlace(samples: Float32Array, sampleRate: number): number {
  const step = Math.round(STEP_SECONDS * sampleRate);
  const gap = Math.round(GAP_SECONDS / STEP_SECONDS);
  const first = Math.floor((samples.length - CHOICE_SECONDS * sampleRate) / step);
  const loudness: number[] = [];
  for (let at = first * step; at + step <= samples.length; at += step) {
    let sum = 0;
    for (let index = at; index < at + step; index++) sum += (samples[index] ?? 0) ** 2;
    loudness.push(sum);
  }
  let best = { at: loudness.length - gap, sum: Number.POSITIVE_INFINITY };
  for (let at = 0; at + gap <= loudness.length; at++) {
    const sum = loudness.slice(at, at + gap).reduce((total, value) => total + value, 0);
    // of equals the last: fewer pieces
    if (sum <= best.sum) best = { at, sum };
  }
  return (first + best.at + Math.floor(gap / 2)) * step;
}
