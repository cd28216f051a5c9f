/**
 * A program of its own that runs sherpa-onnx's models beside a recognizer's, once: it tells speakers apart in one file,
 * and puts marks into a text. Its one argument is a file with the job as JSON; it writes one line of JSON.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

export interface HelperJob {
  speakers?: { file: string; segmentation: string; embedding: string; threshold: number };
  marks?: { model: string; text: string };
}

export interface Segment {
  /** Seconds. */
  start: number;
  end: number;
  speaker: number;
}

export interface HelperResult {
  segments?: Segment[];
  text?: string;
}

/** As far as it is used here (types.js). */
interface SherpaOnnx {
  readWave(file: string): { samples: Float32Array };
  OfflineSpeakerDiarization: new (config: object) => { process(samples: Float32Array): Segment[] };
  OfflinePunctuation: new (config: object) => { addPunct(text: string): string };
}

const { speakers, marks } = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as HelperJob;
try {
  const sherpaOnnx = createRequire(import.meta.url)('sherpa-onnx-node') as SherpaOnnx;
  const result: HelperResult = {
    ...(speakers && { segments: tellSpeakers(sherpaOnnx, speakers) }),
    ...(marks && { text: punctuate(sherpaOnnx, marks) }),
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}

function tellSpeakers(
  { OfflineSpeakerDiarization, readWave }: SherpaOnnx,
  { file, segmentation, embedding, threshold }: NonNullable<HelperJob['speakers']>,
): Segment[] {
  const diarization = new OfflineSpeakerDiarization({
    segmentation: { pyannote: { model: segmentation }, numThreads: 1 },
    embedding: { model: embedding, numThreads: 1 },
    clustering: { numClusters: -1, threshold },
    minDurationOn: 0.2,
    minDurationOff: 0.5,
  });
  return diarization.process(readWave(file).samples);
}

function punctuate({ OfflinePunctuation }: SherpaOnnx, { model, text }: NonNullable<HelperJob['marks']>): string {
  return new OfflinePunctuation({ model: { ctTransformer: model, numThreads: 1 } }).addPunct(text);
}
