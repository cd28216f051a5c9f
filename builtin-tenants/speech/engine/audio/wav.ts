/**
 * Reads and writes the plain WAV files that pass between decoders and recognizers: 16-bit PCM with a 44-byte header.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';

const WAV_HEADER_BYTES = 44;

/** The numbers of codecs in WAV's `fmt `, and bytes of a sample. */
const CODECS = {
  linear16: { tag: 1, bytes: 2 },
  alaw: { tag: 6, bytes: 1 },
  mulaw: { tag: 7, bytes: 1 },
};

/** @param dataBytes undefined: the length is not known yet (a stream), written as the largest number */
export function wavHeader(
  sampleRate: number,
  channels: number,
  dataBytes?: number,
  codec: keyof typeof CODECS = 'linear16',
): Buffer {
  const { tag, bytes } = CODECS[codec];
  const header = Buffer.alloc(WAV_HEADER_BYTES);
  header.write('RIFF', 0);
  header.writeUInt32LE(dataBytes === undefined ? 0xffffffff : dataBytes + 36, 4);
  header.write('WAVEfmt ', 8);
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(tag, 20);
  header.writeUInt16LE(channels, 22);
  header.writeUInt32LE(sampleRate, 24);
  header.writeUInt32LE(sampleRate * channels * bytes, 28);
  header.writeUInt16LE(channels * bytes, 32);
  header.writeUInt16LE(bytes * 8, 34);
  header.write('data', 36);
  header.writeUInt32LE(dataBytes ?? 0xffffffff, 40);
  return header;
}

export interface WavFacts {
  channels: number;
  sampleRate: number;
  frames: number;
  /** Where the samples begin, bytes. */
  start: number;
}

/** What begins a chunk: its name and its length. */
const CHUNK_BYTES = 8;
/** FFmpeg's longest header: that of more than two channels, which says where each stands (WAVE_FORMAT_EXTENSIBLE). */
const LONGEST_HEADER_BYTES = 128;

/** Of a file that a decoder of ours wrote: `fmt ` comes first, and `data` goes to the end. */
export async function readWavFacts(path: string): Promise<WavFacts> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(LONGEST_HEADER_BYTES), 0, LONGEST_HEADER_BYTES, 0);
    const header = buffer.subarray(0, bytesRead);
    const data = header.indexOf('data', WAV_HEADER_BYTES - CHUNK_BYTES);
    if (data < 0) return { channels: 1, sampleRate: 16_000, frames: 0, start: WAV_HEADER_BYTES };
    const start = data + CHUNK_BYTES;
    const channels = header.readUInt16LE(22);
    const { size } = await file.stat();
    const frames = Math.max(0, Math.floor((size - start) / (channels * 2)));
    return { channels, sampleRate: header.readUInt32LE(24), frames, start };
  } finally {
    await file.close();
  }
}

/** Writes one channel of an interleaved file as a file of its own. */
export async function extractChannel(
  source: string,
  target: string,
  facts: WavFacts & { channel: number },
): Promise<void> {
  const stride = facts.channels * 2;
  await pipeline(
    createReadStream(source, { start: facts.start }),
    async function* (chunks: AsyncIterable<Buffer>) {
      yield wavHeader(facts.sampleRate, 1, facts.frames * 2);
      let rest: Buffer = Buffer.alloc(0);
      for await (const chunk of chunks) {
        const data = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
        const frames = Math.floor(data.length / stride);
        const mono = Buffer.alloc(frames * 2);
        for (let frame = 0; frame < frames; frame++) {
          mono.writeInt16LE(data.readInt16LE(frame * stride + facts.channel * 2), frame * 2);
        }
        rest = data.subarray(frames * stride);
        yield mono;
      }
    },
    createWriteStream(target, { mode: 0o600 }),
  );
}
