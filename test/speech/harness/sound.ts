/** Audio made on the spot: a tone in a WAV file. */
import { wavHeader } from '../../../builtin-tenants/speech/engine/audio/wav.ts';

/** @returns 16-bit mono or multi-channel WAV; channel n is a tone of (n + 1) × 220 Hz */
export function toneWav(seconds: number, sampleRate = 16_000, channels = 1): Uint8Array<ArrayBuffer> {
  const frames = Math.round(seconds * sampleRate);
  const data = Buffer.alloc(frames * channels * 2);
  for (let frame = 0; frame < frames; frame++) {
    for (let channel = 0; channel < channels; channel++) {
      const value = Math.sin((2 * Math.PI * 220 * (channel + 1) * frame) / sampleRate) * 8000;
      data.writeInt16LE(Math.round(value), (frame * channels + channel) * 2);
    }
  }
  return new Uint8Array(Buffer.concat([wavHeader(sampleRate, channels, data.length), data]));
}
