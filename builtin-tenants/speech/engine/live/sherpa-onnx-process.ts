/**
 * A program of its own that keeps one model of sherpa-onnx loaded for live streams: it transcribes pieces of audio one
 * after the other. Its native code never runs in the engine's process; a crash ends the streams and not the engine. Its
 * one argument is the model's configuration as JSON, its work comes over the channel to its parent, and it ends with it.
 */
import { createRequire } from 'node:module';
import type { SherpaOnnxJob } from '../listen/sherpa-onnx-wire.ts';

/** As far as it is used here (non-streaming-asr.js). */
interface Recognizer {
  createStream(): { acceptWaveform(wave: { samples: Float32Array; sampleRate: number }): void };
  decode(stream: object): void;
  getResult(stream: object): object;
}

const RATE = 16_000;
/** Models cannot take less than they look at at once. */
const SHORTEST = RATE / 2;
/** Pieces after which memory that is not JavaScript's is given back. */
const COLLECT_EVERY = 20;

const config = JSON.parse(process.argv[2] ?? '{}') as SherpaOnnxJob['config'];
const { OfflineRecognizer } = createRequire(import.meta.url)('sherpa-onnx-node') as {
  OfflineRecognizer: new (config: SherpaOnnxJob['config']) => Recognizer;
};
const recognizer = new OfflineRecognizer(config);
let pieces = 0;

process.on('message', ({ id, samples }: { id: number; samples: Int16Array }) => {
  const wave = new Float32Array(Math.max(SHORTEST, samples.length));
  for (let index = 0; index < samples.length; index++) wave[index] = (samples[index] ?? 0) / 32768;
  const stream = recognizer.createStream();
  stream.acceptWaveform({ samples: wave, sampleRate: RATE });
  recognizer.decode(stream);
  process.send?.({ id, result: recognizer.getResult(stream) });
  pieces += 1;
  if (pieces % COLLECT_EVERY === 0) globalThis.gc?.();
});
process.on('disconnect', () => process.exit());
process.send?.({ ready: true });
