/**
 * Reads and writes the plain WAV files that pass between decoders and recognizers: 16-bit PCM with a 44-byte header.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';

export const WAV_HEADER_BYTES = 44;

/** @param dataBytes undefined: the length is not known yet (a stream), written as the largest number */
export function wavHeader(sampleRate: number, channels: number, dataBytes?: number): Buffer {
  const header = Buffer.alloc(WAV_HEADER_BYTES);
  header.write('RIFF', 0);
  header.writeUInt32LE(dataBytes === undefined ? 0xffffffff : dataBytes + 36, 4);
  header.write('WAVEfmt ', 8);
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(channels, 22);
  header.writeUInt32LE(sampleRate, 24);
  header.writeUInt32LE(sampleRate * channels * 2, 28);
  header.writeUInt16LE(channels * 2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36);
  header.writeUInt32LE(dataBytes ?? 0xffffffff, 40);
  return header;
}

/** Of a file that a decoder of ours wrote: the header is known to be 44 bytes. */
export async function readWavFacts(path: string): Promise<{ channels: number; sampleRate: number; frames: number }> {
  const file = await open(path);
  try {
    const header = Buffer.alloc(WAV_HEADER_BYTES);
    const { bytesRead } = await file.read(header, 0, WAV_HEADER_BYTES, 0);
    if (bytesRead < WAV_HEADER_BYTES) return { channels: 1, sampleRate: 16_000, frames: 0 };
    const channels = header.readUInt16LE(22);
    const { size } = await file.stat();
    const frames = Math.floor((size - WAV_HEADER_BYTES) / (channels * 2));
    return { channels, sampleRate: header.readUInt32LE(24), frames };
  } finally {
    await file.close();
  }
}

/** Writes one channel of an interleaved file as a file of its own. */
export async function extractChannel(
  source: string,
  target: string,
  facts: { channels: number; channel: number; sampleRate: number; frames: number },
): Promise<void> {
  const stride = facts.channels * 2;
  await pipeline(
    createReadStream(source, { start: WAV_HEADER_BYTES }),
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
