/** Every audio format that the embedded engine offers, as ffprobe sees it, and what it refuses. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram } from '../../builtin-tenants/speech/engine/programs.ts';
import {
  FLAC_SAMPLE_RATES,
  LINEAR_SAMPLE_RATES,
  MP3_SAMPLE_RATES,
  TELEPHONE_SAMPLE_RATES,
} from '../../builtin-tenants/speech/engine/speak/format.ts';
import { commandOf, processTree } from '../bench/processes.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';

const TEXT = 'Good morning.';
const ffprobe = await findProgram('ffprobe');

/** With the demuxer that reads what has no header. */
const BARE = { linear16: 's16le', mulaw: 'mulaw', alaw: 'alaw' };
const CODEC = {
  mp3: 'mp3',
  linear16: 'pcm_s16le',
  mulaw: 'pcm_mulaw',
  alaw: 'pcm_alaw',
  flac: 'flac',
  opus: 'opus',
  aac: 'aac',
};
/** That say themselves what they are; the others are bare without WAV. */
const TYPES: Partial<Record<keyof typeof CODEC, RegExp>> = {
  flac: /^audio\/flac$/,
  opus: /^audio\/ogg;codecs=opus$/,
  aac: /^audio\/aac$/,
};
const MAGIC: Partial<Record<keyof typeof CODEC, string>> = { flac: 'fLaC', opus: 'OggS' };

interface Format {
  encoding: keyof typeof CODEC;
  container: 'none' | 'wav' | 'ogg';
  sampleRate: number;
  bitRate?: number;
}

const FORMATS: Format[] = [
  ...[...MP3_SAMPLE_RATES].flatMap(([bitRate, rates]) =>
    rates.map((sampleRate) => ({ encoding: 'mp3' as const, container: 'none' as const, sampleRate, bitRate })),
  ),
  ...(['none', 'wav'] as const).flatMap((container) => [
    ...LINEAR_SAMPLE_RATES.map((sampleRate) => ({ encoding: 'linear16' as const, container, sampleRate })),
    ...(['mulaw', 'alaw'] as const).flatMap((encoding) =>
      TELEPHONE_SAMPLE_RATES.map((sampleRate) => ({ encoding, container, sampleRate })),
    ),
  ]),
  ...FLAC_SAMPLE_RATES.map((sampleRate) => ({ encoding: 'flac' as const, container: 'none' as const, sampleRate })),
  ...[4000, 12_000, 256_000].map((bitRate) => ({
    encoding: 'opus' as const,
    container: 'ogg' as const,
    sampleRate: 48_000,
    bitRate,
  })),
  ...[4000, 48_000, 192_000].map((bitRate) => ({
    encoding: 'aac' as const,
    container: 'none' as const,
    sampleRate: 22_050,
    bitRate,
  })),
];

let engine: RunningEngine;

beforeAll(async () => {
  engine = await startEngine();
});

afterAll(() => engine.stop());

async function speak(body: object): Promise<{ status: number; type: string; audio: Buffer }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; type: string; audio: Buffer }>();
  const call = request({ socketPath: engine.socket, method: 'POST', path: '/speak' }, async (response) => {
    const audio = Buffer.concat((await response.toArray()) as Buffer[]);
    resolve({ status: response.statusCode ?? 0, type: response.headers['content-type'] ?? '', audio });
  });
  call.on('error', reject).end(JSON.stringify(body));
  return await promise;
}

function probe(audio: Buffer, { encoding, container, sampleRate }: Format) {
  const bare =
    container === 'none' && encoding in BARE
      ? ['-f', BARE[encoding as keyof typeof BARE], '-ar', String(sampleRate)]
      : [];
  const shown = [
    '-count_packets',
    '-show_entries',
    'stream=codec_name,sample_rate,channels,bit_rate:packet=duration_time',
  ];
  const args = ['-v', 'error', ...bare, '-of', 'json', ...shown, '-'];
  const { status, stdout, stderr } = spawnSync(ffprobe ?? '', args, { input: audio, encoding: 'utf8' });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const { streams, packets } = JSON.parse(stdout) as {
    streams: { codec_name: string; sample_rate: string; channels: number; bit_rate: string }[];
    packets: { duration_time: string }[];
  };
  const seconds = packets.reduce((sum, { duration_time }) => sum + Number(duration_time), 0);
  return { streams, seconds };
}

describe.skipIf(ffprobe === undefined)('ffprobe reads', () => {
  it.each(FORMATS)('$encoding, $container, $sampleRate Hz, $bitRate', async (format) => {
    const { status, audio, type } = await speak({ text: TEXT, ...format });
    expect(status).toBe(200);
    const { streams, seconds } = probe(audio, format);
    const { encoding, sampleRate, bitRate } = format;
    expect(streams).toEqual([
      expect.objectContaining({ codec_name: CODEC[encoding], sample_rate: String(sampleRate), channels: 1 }),
    ]);
    if (encoding === 'mp3') expect(streams[0]?.bit_rate).toBe(String(bitRate));
    expect(audio.subarray(0, 4).toString('latin1') === 'RIFF').toBe(format.container === 'wav');
    if (MAGIC[encoding] !== undefined) expect(audio.toString('latin1', 0, 4)).toBe(MAGIC[encoding]);
    expect(type).toMatch(TYPES[encoding] ?? /^audio\//);
    expect(seconds).toBeGreaterThan(0.5);
    expect(seconds).toBeLessThan(2);
  });
});

describe('FFmpeg', () => {
  const encoders = () => processTree([engine.pid]).filter((pid) => commandOf(pid).includes('ffmpeg'));

  it('sends what is made while it is made, and ends with its listener', async () => {
    const body = JSON.stringify({ text: 'The children played with a ball in the park. '.repeat(40), encoding: 'flac' });
    const call = request({ socketPath: engine.socket, method: 'POST', path: '/speak' });
    call.on('error', () => {}).end(body);
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    await once(response, 'data');
    expect(encoders()).toHaveLength(1);
    call.destroy();
    await expect.poll(encoders).toEqual([]);
    expect((await speak({ text: TEXT, encoding: 'opus' })).status).toBe(200);
  });

  it('that is killed breaks the answer off, or is an error of its own', async () => {
    const spoken = speak({ text: 'The children played with a ball in the park. '.repeat(40), encoding: 'aac' });
    await expect.poll(encoders, { interval: 5 }).toHaveLength(1);
    for (const pid of encoders()) process.kill(pid, 'SIGKILL');
    const outcome = await spoken.catch((error: Error) => error);
    expect(outcome instanceof Error || outcome.status !== 200).toBe(true);
    expect((await speak({ text: TEXT, encoding: 'aac' })).status).toBe(200);
  });
});

describe('is refused', () => {
  it.each([
    ['FLAC at a rate that Deepgram has not', { encoding: 'flac', sampleRate: 24_000 }],
    ['Opus in WAV', { encoding: 'opus', container: 'wav' }],
    ['Opus above what one channel takes', { encoding: 'opus', bitRate: 300_000 }],
    ['AAC at another rate', { encoding: 'aac', sampleRate: 48_000 }],
    ['MP3 in WAV', { encoding: 'mp3', container: 'wav' }],
    ['MP3 at a rate that 32 kbit/s has not', { encoding: 'mp3', sampleRate: 24_000, bitRate: 32_000 }],
  ])('%s', async (_what, body) => {
    const { status, audio } = await speak({ text: TEXT, ...body });
    expect(status).toBe(422);
    expect(JSON.parse(audio.toString())).toMatchObject({ code: 'unsupported_option' });
  });
});
