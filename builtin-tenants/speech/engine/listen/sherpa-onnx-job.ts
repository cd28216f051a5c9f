/**
 * A program of its own: transcribes one file with sherpa-onnx's package for Node, whose code is native. It runs once per
 * job, so that a crash, a leak or an endless loop in there is the job's and not the engine's. Its one argument is the job
 * as JSON; it writes a line of JSON for each piece of the audio, as sherpa-onnx's own program does for a file.
 */
import { createRequire } from 'node:module';
import { cutIntoPieces } from './pieces.ts';
import { type Hearing, openRecognizer } from './sherpa-onnx-native.ts';
import { type SherpaOnnxJob, UNLOADABLE } from './sherpa-onnx-wire.ts';

const { config, streams, file } = JSON.parse(process.argv[2] ?? '{}') as SherpaOnnxJob;
orEnd(UNLOADABLE, () => createRequire(import.meta.url)('sherpa-onnx-node'));
const listen = orEnd(1, () => openRecognizer({ config, streams }));
if (file !== undefined) await transcribe(file, listen);

async function transcribe(path: string, begin: () => Hearing): Promise<void> {
  for await (const { from, to, ...wave } of cutIntoPieces(path)) {
    const hearing = begin();
    hearing.push(wave);
    process.stdout.write(`${JSON.stringify({ text: '', ...hearing.end(), from, to })}\n`);
    // a stream's memory is not JavaScript's, which therefore sees no reason to give it back
    globalThis.gc?.();
  }
}

function orEnd<T>(code: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exit(code);
  }
}
