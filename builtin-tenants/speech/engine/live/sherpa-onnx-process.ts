/**
 * A program of its own that keeps one model of sherpa-onnx loaded for live streams: it transcribes audio, utterance by
 * utterance, and of a model that streams what each has so far. Its native code never runs in the engine's process; a
 * crash ends the streams and not the engine. Its one argument is the model's configuration as JSON, its work comes over
 * the channel to its parent, and it ends with it.
 */
import { type Hearing, openRecognizer } from '../listen/sherpa-onnx-native.ts';
import type { SherpaOnnxJob } from '../listen/sherpa-onnx-wire.ts';

export interface LiveWork {
  /** 16 kHz: what follows on the last of the same utterance. */
  samples: Int16Array;
  /** Utterances are told apart by it. */
  utterance: number;
  /** It is over, and forgotten. */
  isEnd: boolean;
}

const RATE = 16_000;
/** Utterances after which memory that is not JavaScript's is given back. */
const COLLECT_EVERY = 20;

const begin = openRecognizer(JSON.parse(process.argv[2] ?? '{}') as SherpaOnnxJob);
const hearings = new Map<number, Hearing>();
let ended = 0;

process.on('message', ({ id, samples, utterance, isEnd }: LiveWork & { id: number }) => {
  const hearing = hearings.get(utterance) ?? begin();
  hearings.set(utterance, hearing);
  const heard = hearing.push({ samples: Float32Array.from(samples, (one) => one / 32768), sampleRate: RATE });
  process.send?.({ id, result: isEnd ? hearing.end() : heard });
  if (!isEnd) return;
  hearings.delete(utterance);
  ended += 1;
  if (ended % COLLECT_EVERY === 0) globalThis.gc?.();
});
process.on('disconnect', () => process.exit());
process.send?.({ ready: true });
