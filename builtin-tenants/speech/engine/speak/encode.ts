/**
 * Turns spoken samples into the bytes of the asked format, piece by piece: MP3 by LAME in WebAssembly, PCM and G.711
 * here, the rest by FFmpeg (ffmpeg-encoder.ts).
 */
import { createMp3Encoder } from 'wasm-media-encoders';
import { Resampler } from '../audio/resample.ts';
import { wavHeader } from '../audio/wav.ts';
import { createFfmpegEncoder } from './ffmpeg-encoder.ts';
import { byFfmpeg, MP3_SAMPLE_RATES, needsFfmpeg, type SpeechFormat } from './format.ts';

export interface SpeechEncoder {
  push(samples: Int16Array): void;
  /** Resolves when more can be pushed without piling up. */
  taken(): Promise<void>;
  /** Resolves when all of it was emitted. @throws EngineFailure */
  end(): Promise<void>;
  /** Nobody listens any more. */
  close(): void;
}

/** One that works in this thread, at once. */
interface Packer {
  push(samples: Int16Array): Uint8Array;
  end(): Uint8Array;
}

/**
 * @param sourceRate samples a second of what is pushed
 * @param emit called with bytes in order
 * @param ffmpeg for the encodings that it makes
 */
export async function createEncoder(
  format: SpeechFormat,
  sourceRate: number,
  emit: (bytes: Uint8Array) => void,
  ffmpeg?: string,
): Promise<SpeechEncoder> {
  if (byFfmpeg(format)) {
    if (ffmpeg === undefined) throw needsFfmpeg(format.encoding);
    return createFfmpegEncoder(ffmpeg, format, sourceRate, emit);
  }
  const packer = await createPacker(format, sourceRate);
  return {
    push: (samples) => emit(packer.push(samples)),
    taken: async () => {},
    end: async () => emit(packer.end()),
    close: () => {},
  };
}

async function createPacker(format: SpeechFormat, sourceRate: number): Promise<Packer> {
  const rate = format.sampleRate ?? ownRate(format, sourceRate);
  const resampler = rate === sourceRate ? undefined : new Resampler(sourceRate, rate);
  const prepare = (samples: Int16Array) => {
    const floats = Float32Array.from(samples, (sample) => sample / 32_768);
    return resampler?.push(floats) ?? floats;
  };
  if (format.encoding === 'mp3') return mp3(rate, format.bitRate, prepare);
  const encoding = format.encoding as keyof typeof PACKERS;
  const pack = PACKERS[encoding];
  let pendingHeader = format.container === 'wav' ? wavHeader(rate, 1, undefined, encoding) : Buffer.alloc(0);
  return {
    push(samples) {
      const bytes = Buffer.concat([pendingHeader, pack(prepare(samples))]);
      pendingHeader = Buffer.alloc(0);
      return bytes;
    },
    end: () => pendingHeader,
  };
}

/** As the voice is made, or the nearest that the encoder makes of it. */
function ownRate({ encoding, bitRate }: SpeechFormat, sourceRate: number): number {
  const rates = encoding === 'mp3' ? MP3_SAMPLE_RATES.get(bitRate) : undefined;
  return rates?.includes(sourceRate) === false ? (rates.at(-1) ?? sourceRate) : sourceRate;
}

async function mp3(
  sampleRate: number,
  bitRate: number,
  prepare: (samples: Int16Array) => Float32Array,
): Promise<Packer> {
  const encoder = await createMp3Encoder();
  // the package's types know only the bit rates of MPEG-1; LAME takes those of MPEG-2 at these sample rates
  encoder.configure({ sampleRate, channels: 1, bitrate: (bitRate / 1000) as 32 | 48 });
  return {
    // the encoder's memory is used again by its next call
    push: (samples) => encoder.encode([prepare(samples)]).slice(),
    end: () => encoder.finalize().slice(),
  };
}

const level = (value: number) => Math.round(Math.max(-1, Math.min(1, value)) * 32_767);

const PACKERS: Record<'linear16' | 'mulaw' | 'alaw', (samples: Float32Array) => Buffer> = {
  linear16(samples) {
    const bytes = Buffer.alloc(samples.length * 2);
    samples.forEach((value, index) => {
      bytes.writeInt16LE(level(value), index * 2);
    });
    return bytes;
  },
  mulaw: (samples) => Buffer.from(Uint8Array.from(samples, (value) => toMulaw(level(value)))),
  alaw: (samples) => Buffer.from(Uint8Array.from(samples, (value) => toAlaw(level(value)))),
};

/** ITU-T G.711, µ-law, from 16-bit samples. */
export function toMulaw(sample: number): number {
  const sign = sample < 0 ? 0x80 : 0;
  const magnitude = Math.min(32_635, Math.abs(sample)) + 0x84;
  const exponent = 31 - Math.clz32(magnitude) - 7;
  const mantissa = (magnitude >> (exponent + 3)) & 0x0f;
  return ~(sign | (exponent << 4) | mantissa) & 0xff;
}

/** ITU-T G.711, A-law, from 16-bit samples. */
export function toAlaw(sample: number): number {
  const sign = sample < 0 ? 0 : 0x80;
  const magnitude = Math.min(32_767, sample < 0 ? -sample - 1 : sample);
  const exponent = magnitude < 256 ? 0 : 31 - Math.clz32(magnitude) - 7;
  const mantissa = (magnitude >> (exponent === 0 ? 4 : exponent + 3)) & 0x0f;
  return (sign | (exponent << 4) | mantissa) ^ 0x55;
}
