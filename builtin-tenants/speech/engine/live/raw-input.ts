/** Samples without a header, as they come: cut anywhere, made 16-bit at 16 kHz, channels apart or mixed into one. */
import type { RawFormat } from '../audio/container.ts';
import { Resampler } from '../audio/resample.ts';

const RATE = 16_000;
const BYTES: Record<RawFormat['encoding'], number> = { linear16: 2, linear32: 4, mulaw: 1, alaw: 1 };

export class RawInput {
  readonly #format: RawFormat;
  readonly #resamplers: (Resampler | undefined)[];
  #rest: Buffer = Buffer.alloc(0);

  /** @param apart keeps the channels apart */
  constructor(format: RawFormat, apart: boolean) {
    this.#format = format;
    const count = apart ? format.channels : 1;
    this.#resamplers = Array.from({ length: count }, () =>
      format.sampleRate === RATE ? undefined : new Resampler(format.sampleRate, RATE),
    );
  }

  /** @returns samples of each channel */
  push(bytes: Buffer): Int16Array[] {
    const { encoding, channels } = this.#format;
    const width = BYTES[encoding];
    const data = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    const frames = Math.floor(data.length / (width * channels));
    this.#rest = Buffer.from(data.subarray(frames * width * channels));
    const read = READERS[encoding];
    return this.#resamplers.map((resampler, channel) => {
      const samples = new Float32Array(frames);
      for (let frame = 0; frame < frames; frame++) {
        const first = frame * channels;
        if (this.#resamplers.length === channels) samples[frame] = read(data, (first + channel) * width);
        else {
          let sum = 0;
          for (let each = 0; each < channels; each++) sum += read(data, (first + each) * width);
          samples[frame] = sum / channels;
        }
      }
      return toInt16(resampler === undefined ? samples : resampler.push(samples));
    });
  }
}

function toInt16(samples: Float32Array): Int16Array {
  return Int16Array.from(samples, (sample) => Math.max(-32768, Math.min(32767, Math.round(sample))));
}

/** ITU-T G.711. */
const MULAW = Int16Array.from({ length: 256 }, (_, code) => {
  const bits = ~code & 0xff;
  const magnitude = ((((bits & 0x0f) << 3) + 0x84) << ((bits & 0x70) >> 4)) - 0x84;
  return bits & 0x80 ? -magnitude : magnitude;
});
const ALAW = Int16Array.from({ length: 256 }, (_, code) => {
  const bits = code ^ 0x55;
  const exponent = (bits & 0x70) >> 4;
  const mantissa = (bits & 0x0f) << 4;
  const magnitude = exponent === 0 ? mantissa + 8 : (mantissa + 0x108) << (exponent - 1);
  return bits & 0x80 ? magnitude : -magnitude;
});

/** On the scale of 16 bits. */
const READERS: Record<RawFormat['encoding'], (data: Buffer, at: number) => number> = {
  linear16: (data, at) => data.readInt16LE(at),
  linear32: (data, at) => data.readInt32LE(at) / 65536,
  mulaw: (data, at) => MULAW[data[at] ?? 0] ?? 0,
  alaw: (data, at) => ALAW[data[at] ?? 0] ?? 0,
};
