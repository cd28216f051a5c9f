/**
 * For engines elsewhere: the length of audio is measured by the engine process before it is sent on, so that nobody is
 * billed for work that the payment does not cover. Without that process the audio goes straight through.
 */
import { SpeechFailure } from '../failure.ts';
import type { EmbeddedEngine } from './embedded.ts';
import type { AudioSource, ListenJob } from './engine.ts';

export interface MeasuredAudio {
  audio: AudioSource;
  /** Undefined: it could not be measured here. */
  measured: { sha256: string; durationMs: number; billableMs: number } | undefined;
}

/** @param use sends the audio on; what was kept is dropped when it is done */
export async function withMeasuredAudio<Result>(
  job: ListenJob,
  engine: EmbeddedEngine | undefined,
  use: (audio: MeasuredAudio) => Promise<Result>,
): Promise<Result> {
  if (engine === undefined) return await use({ audio: job.audio, measured: undefined });
  const kept = await engine.keep(job);
  try {
    return await use({ audio: await engine.kept(kept, job.signal), measured: kept });
  } finally {
    await engine.drop(kept.id);
  }
}

/** @throws SpeechFailure PAYMENT_LIMIT_EXCEEDED when it was longer than paid for, which was not known before */
export function checkBillable(billableMs: number, maxBillableMs: number): number {
  if (billableMs > maxBillableMs) {
    throw new SpeechFailure('PAYMENT_LIMIT_EXCEEDED', `The audio is ${(billableMs / 1000).toFixed(3)} s long.`, {
      extra: { billable_ms: billableMs },
    });
  }
  return billableMs;
}
