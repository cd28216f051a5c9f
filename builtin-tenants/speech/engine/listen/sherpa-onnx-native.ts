/**
 * sherpa-onnx's package for Node, as far as it is used to hear: one recognizer, whether its model streams or not. For the
 * processes that run it; native code never runs in the engine's own.
 */
import { createRequire } from 'node:module';
import type { SherpaOnnxJob } from './sherpa-onnx-wire.ts';

interface Wave {
  samples: Float32Array;
  sampleRate: number;
}
interface OfflineRecognizer {
  createStream(): { acceptWaveform(wave: Wave): void };
  decode(stream: object): void;
  getResult(stream: object): object;
}
interface OnlineRecognizer extends OfflineRecognizer {
  createStream(): { acceptWaveform(wave: Wave): void; inputFinished(): void };
  isReady(stream: object): boolean;
}

/** Audio that is heard as one. Results are those of the package (types.js). */
export interface Hearing {
  /** @returns what was heard so far, where the model streams; else nothing */
  push(wave: Wave): object;
  end(): object;
}

/** Models cannot take less than they look at at once: shorter audio is followed by silence. */
const SHORTEST_SECONDS = 0.5;
/** Streaming models hear in steps, of up to 1.4 s: what is shorter than one is heard when silence fills it. */
const LONGEST_STEP_SECONDS = 1.5;

/** @throws Error that says why the model cannot be loaded, or the package not */
export function openRecognizer({ config, streams }: Omit<SherpaOnnxJob, 'file'>): () => Hearing {
  const sherpaOnnx = createRequire(import.meta.url)('sherpa-onnx-node') as {
    OfflineRecognizer: new (config: object) => OfflineRecognizer;
    OnlineRecognizer: new (config: object) => OnlineRecognizer;
  };
  if (streams) {
    const recognizer = new sherpaOnnx.OnlineRecognizer(config);
    return () => online(recognizer);
  }
  const recognizer = new sherpaOnnx.OfflineRecognizer(config);
  return () => offline(recognizer);
}

function online(recognizer: OnlineRecognizer): Hearing {
  const stream = recognizer.createStream();
  let rate = 16_000;
  const result = () => {
    while (recognizer.isReady(stream)) recognizer.decode(stream);
    // of the same meaning, by another name
    const { ys_probs: ys_log_probs, ...heard } = recognizer.getResult(stream) as { ys_probs?: number[] };
    return { ...heard, ys_log_probs };
  };
  return {
    push(wave) {
      rate = wave.sampleRate;
      stream.acceptWaveform(wave);
      return result();
    },
    end() {
      stream.acceptWaveform({ samples: new Float32Array(LONGEST_STEP_SECONDS * rate), sampleRate: rate });
      stream.inputFinished();
      return result();
    },
  };
}

function offline(recognizer: OfflineRecognizer): Hearing {
  const stream = recognizer.createStream();
  let seconds = 0;
  let rate = 16_000;
  return {
    push(wave) {
      rate = wave.sampleRate;
      seconds += wave.samples.length / rate;
      stream.acceptWaveform(wave);
      return {};
    },
    end() {
      const missing = Math.ceil((SHORTEST_SECONDS - seconds) * rate);
      if (missing > 0) stream.acceptWaveform({ samples: new Float32Array(missing), sampleRate: rate });
      recognizer.decode(stream);
      return recognizer.getResult(stream);
    },
  };
}
