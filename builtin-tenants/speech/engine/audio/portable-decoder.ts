/**
 * A program of its own: decodes one file with JavaScript and WebAssembly decoders, for hosts without FFmpeg.
 * It runs once per job, so that a decoder that loops or swells is ended without touching anything else.
 */
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import decode, { decodeChunked } from 'audio-decode';
import { z } from 'zod';
import { Resampler } from './resample.ts';
import { wavHeader } from './wav.ts';

const SAMPLE_RATE = 16_000;

const job = z
  .strictObject({
    input: z.string(),
    output: z.string(),
    format: z.enum(['mp3', 'flac', 'opus', 'oga', 'm4a', 'wav', 'aac', 'aiff', 'caf', 'webm', 'amr']).optional(),
    raw: z
      .strictObject({
        encoding: z.enum(['linear16', 'linear32', 'mulaw', 'alaw']),
        sampleRate: z.number(),
        channels: z.number(),
      })
      .optional(),
    multichannel: z.boolean(),
    seconds: z.number(),
    /** Of all channels together. */
    samplesASecond: z.number(),
  })
  .parse(JSON.parse(process.argv[2] ?? '{}'));

interface Block {
  channelData: Float32Array[];
  sampleRate: number;
}

/** Whole-file decoders of the package: their index may sit at the end of the file. */
const WHOLE_FILE = new Set(['m4a', 'caf', 'webm', 'aiff', 'amr']);

async function* blocks(): AsyncGenerator<Block> {
  if (job.raw !== undefined) yield* rawBlocks(job.raw);
  else if (job.format === undefined) throw new Error('no format');
  else if (WHOLE_FILE.has(job.format)) {
    const file = await open(job.input);
    try {
      yield await decode(await file.readFile());
    } finally {
      await file.close();
    }
  } else yield* decodeChunked(createReadStream(job.input), job.format);
}

async function* rawBlocks(raw: NonNullable<typeof job.raw>): AsyncGenerator<Block> {
  const size = raw.encoding === 'linear16' ? 2 : raw.encoding === 'linear32' ? 4 : 1;
  const stride = size * raw.channels;
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of createReadStream(job.input)) {
    const data = Buffer.concat([rest, chunk]);
    const frames = Math.floor(data.length / stride);
    const channelData = Array.from({ length: raw.channels }, (_, channel) =>
      Float32Array.from({ length: frames }, (_, frame) => sample(data, frame * stride + channel * size, raw.encoding)),
    );
    rest = data.subarray(frames * stride);
    yield { channelData, sampleRate: raw.sampleRate };
  }
}

/** G.711 after ITU-T G.191. */
function sample(data: Buffer, offset: number, encoding: NonNullable<typeof job.raw>['encoding']): number {
  switch (encoding) {
    case 'linear16':
      return data.readInt16LE(offset) / 32_768;
    case 'linear32':
      return data.readInt32LE(offset) / 2_147_483_648;
    case 'mulaw': {
      const byte = ~(data[offset] ?? 0) & 0xff;
      const magnitude = ((((byte & 0x0f) << 3) + 0x84) << ((byte & 0x70) >> 4)) - 0x84;
      return (byte & 0x80 ? -magnitude : magnitude) / 32_768;
    }
    case 'alaw': {
      const byte = (data[offset] ?? 0) ^ 0x55;
      const exponent = (byte & 0x70) >> 4;
      const mantissa = ((byte & 0x0f) << 4) + 8;
      const magnitude = exponent === 0 ? mantissa : (mantissa + 0x100) << (exponent - 1);
      return (byte & 0x80 ? magnitude : -magnitude) / 32_768;
    }
  }
}

function mixed(channels: Float32Array[]): Float32Array[] {
  const [first, ...others] = channels;
  if (first === undefined || others.length === 0) return channels;
  return [
    first.map((value, index) => others.reduce((sum, other) => sum + (other[index] ?? 0), value) / channels.length),
  ];
}

function interleaved(channels: Float32Array[]): Buffer {
  const frames = channels[0]?.length ?? 0;
  const output = Buffer.alloc(frames * channels.length * 2);
  channels.forEach((samples, channel) => {
    samples.forEach((value, frame) => {
      const level = Math.max(-1, Math.min(1, value)) * 32_767;
      output.writeInt16LE(Math.round(level), (frame * channels.length + channel) * 2);
    });
  });
  return output;
}

const output = await open(job.output, 'w', 0o600);
let frames = 0;
let channelCount = 0;
let resamplers: Resampler[] = [];
await output.write(wavHeader(SAMPLE_RATE, 1));
for await (const block of blocks()) {
  if ((block.channelData[0]?.length ?? 0) === 0) continue;
  if (block.sampleRate * block.channelData.length > job.samplesASecond) throw new Error('too many samples a second');
  const channels = job.multichannel ? block.channelData : mixed(block.channelData);
  if (channelCount === 0) {
    channelCount = channels.length;
    resamplers = channels.map(() => new Resampler(block.sampleRate, SAMPLE_RATE));
  }
  if (channels.length !== channelCount) break;
  const resampled = channels.map((samples, index) => resamplers[index]?.push(samples) ?? new Float32Array());
  await output.write(interleaved(resampled));
  frames += resampled[0]?.length ?? 0;
  if (frames >= job.seconds * SAMPLE_RATE) break;
}
const header = wavHeader(SAMPLE_RATE, Math.max(1, channelCount), frames * Math.max(1, channelCount) * 2);
await output.write(header, 0, header.length, 0);
await output.close();
process.exit(0);
