/**
 * A program of its own: transcribes one file with sherpa-onnx's package for Node, whose code is native. It runs once per
 * job, so that a crash, a leak or an endless loop in there is the job's and not the engine's. Its one argument is the job
 * as JSON; it writes a line of JSON for each piece of the audio, as sherpa-onnx's own program does for a file.
 */
import { createRequire } from 'node:module';
import { cutIntoPieces, type Piece } from './pieces.ts';
import { type SherpaOnnxJob, UNLOADABLE } from './sherpa-onnx-wire.ts';

/** As far as it is used here (non-streaming-asr.js). */
interface Stream {
  acceptWaveform(wave: { samples: Float32Array; sampleRate: number }): void;
}
interface Recognizer {
  createStream(): Stream;
  decode(stream: Stream): void;
  getResult(stream: Stream): object;
}
interface SherpaOnnx {
  OfflineRecognizer: new (config: SherpaOnnxJob['config']) => Recognizer;
}

/** Models cannot take less than they look at at once: shorter audio is followed by silence. */
const SHORTEST_SECONDS = 0.5;

const { config, file } = JSON.parse(process.argv[2] ?? '{}') as SherpaOnnxJob;
const recognizer = openRecognizer(load());
if (file !== undefined) await transcribe(file);

async function transcribe(path: string): Promise<void> {
  for await (const { from, to, ...wave } of cutIntoPieces(path)) {
    const stream = recognizer.createStream();
    stream.acceptWaveform(atLeastShortest(wave));
    recognizer.decode(stream);
    process.stdout.write(`${JSON.stringify({ text: '', ...recognizer.getResult(stream), from, to })}\n`);
    // a stream's memory is not JavaScript's, which therefore sees no reason to give it back
    globalThis.gc?.();
  }
}

function atLeastShortest({ samples, sampleRate }: Pick<Piece, 'samples' | 'sampleRate'>) {
  const shortest = Math.ceil(SHORTEST_SECONDS * sampleRate);
  if (samples.length >= shortest) return { samples, sampleRate };
  const longer = new Float32Array(shortest);
  longer.set(samples);
  return { samples: longer, sampleRate };
}

function load(): SherpaOnnx {
  try {
    return createRequire(import.meta.url)('sherpa-onnx-node') as SherpaOnnx;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exit(UNLOADABLE);
  }
}

function openRecognizer({ OfflineRecognizer }: SherpaOnnx): Recognizer {
  try {
    return new OfflineRecognizer(config);
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  }
}
