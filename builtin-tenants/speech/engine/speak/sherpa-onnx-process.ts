/**
 * A program of its own that keeps one voice of sherpa-onnx loaded: text in, samples out, one piece after the other. Its
 * one argument is the voice's configuration as JSON; it works for engine/native-process.ts, and ends with it.
 */
import { createRequire } from 'node:module';

export interface VoiceFacts {
  /** Samples a second. */
  sampleRate: number;
  speakers: number;
}

export interface Spoken {
  samples: Int16Array;
}

/** As far as it is used here (non-streaming-tts.js). */
interface OfflineTts {
  sampleRate: number;
  numSpeakers: number;
  generateAsync(asked: {
    text: string;
    sid: number;
    speed: number;
    enableExternalBuffer: boolean;
  }): Promise<{ samples: Float32Array }>;
}

const config = JSON.parse(process.argv[2] ?? '{}') as object;
const { OfflineTts } = createRequire(import.meta.url)('sherpa-onnx-node') as {
  OfflineTts: new (config: object) => OfflineTts;
};
const tts = new OfflineTts(config);

process.on('message', async (work: { id: number; text: string; speaker: number; speed: number }) => {
  const { id, text, speaker, speed } = work;
  try {
    // not in this thread: it has to see that its parent has gone
    const { samples } = await tts.generateAsync({ text, sid: speaker, speed, enableExternalBuffer: false });
    process.send?.({ id, result: { samples: Int16Array.from(samples, level) } satisfies Spoken });
    globalThis.gc?.();
  } catch (error) {
    process.send?.({ id, failed: error instanceof Error ? error.message : String(error) });
  }
});
/** A 16-bit sample. */
function level(value: number): number {
  return Math.round(Math.max(-1, Math.min(1, value)) * 32_767);
}

process.on('disconnect', () => process.exit());
process.send?.({ ready: { sampleRate: tts.sampleRate, speakers: tts.numSpeakers } satisfies VoiceFacts });
