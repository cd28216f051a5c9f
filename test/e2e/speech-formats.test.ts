/** Every audio format that the embedded engine offers, as ffprobe sees it, and what it refuses. */
import { spawnSync } from 'node:child_process';
import { request } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram } from '../../builtin-tenants/speech/engine/programs.ts';
import {
  LINEAR_SAMPLE_RATES,
  MP3_SAMPLE_RATES,
  TELEPHONE_SAMPLE_RATES,
} from '../../builtin-tenants/speech/engine/speak/format.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';

const TEXT = 'Good morning.';
const ffprobe = await findProgram('ffprobe');

/** With the demuxer that reads what has no header. */
const BARE = { linear16: 's16le', mulaw: 'mulaw', alaw: 'alaw' };
const CODEC = { mp3: 'mp3', linear16: 'pcm_s16le', mulaw: 'pcm_mulaw', alaw: 'pcm_alaw' };

interface Format {
  encoding: keyof typeof CODEC;
  container: 'none' | 'wav';
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
];

let engine: RunningEngine;

beforeAll(async () => {
  engine = await startEngine();
});

afterAll(() => engine.stop());

async function speak(body: object): Promise<{ status: number; audio: Buffer }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; audio: Buffer }>();
  const call = request({ socketPath: engine.socket, method: 'POST', path: '/speak' }, async (response) => {
    const audio = Buffer.concat((await response.toArray()) as Buffer[]);
    resolve({ status: response.statusCode ?? 0, audio });
  });
  call.on('error', reject).end(JSON.stringify(body));
  return await promise;
}

function probe(audio: Buffer, { encoding, container, sampleRate }: Format) {
  const bare = container === 'none' && encoding !== 'mp3' ? ['-f', BARE[encoding], '-ar', String(sampleRate)] : [];
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
    const { status, audio } = await speak({ text: TEXT, ...format });
    expect(status).toBe(200);
    const { streams, seconds } = probe(audio, format);
    const { encoding, sampleRate, bitRate } = format;
    expect(streams).toEqual([
      expect.objectContaining({ codec_name: CODEC[encoding], sample_rate: String(sampleRate), channels: 1 }),
    ]);
    if (bitRate !== undefined) expect(streams[0]?.bit_rate).toBe(String(bitRate));
    expect(audio.subarray(0, 4).toString('latin1') === 'RIFF').toBe(format.container === 'wav');
    expect(seconds).toBeGreaterThan(0.5);
    expect(seconds).toBeLessThan(2);
  });
});

describe('is refused', () => {
  it.each([
    ['flac', { encoding: 'flac' }],
    ['opus', { encoding: 'opus', container: 'ogg' }],
    ['aac', { encoding: 'aac' }],
    ['MP3 in WAV', { encoding: 'mp3', container: 'wav' }],
    ['MP3 at a rate that 32 kbit/s has not', { encoding: 'mp3', sampleRate: 24_000, bitRate: 32_000 }],
  ])('%s', async (_what, body) => {
    const { status, audio } = await speak({ text: TEXT, ...body });
    expect(status).toBe(422);
    expect(JSON.parse(audio.toString())).toMatchObject({ code: 'unsupported_option' });
  });
});
