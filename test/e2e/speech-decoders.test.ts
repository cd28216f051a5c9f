/** The same audio in many formats, with FFmpeg and without it: decoded to the same length, or refused by name. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Decoder } from '../../builtin-tenants/speech/engine/audio/decode.ts';
import { openConfinement } from '../../builtin-tenants/speech/engine/confine.ts';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';
import { requestSocket } from '../speech/harness/socket.ts';
import { toneWav } from '../speech/harness/sound.ts';

const SECONDS = 2;

/** Name -> FFmpeg's arguments that make it. */
const FORMATS: Record<string, string[]> = {
  'wav 44.1 kHz stereo': ['-ar', '44100', '-ac', '2', '-f', 'wav'],
  mp3: ['-f', 'mp3'],
  flac: ['-f', 'flac'],
  'ogg vorbis': ['-c:a', 'libvorbis', '-f', 'ogg'],
  'ogg opus': ['-c:a', 'libopus', '-f', 'ogg'],
  webm: ['-c:a', 'libopus', '-f', 'webm'],
  m4a: ['-c:a', 'aac', '-f', 'ipod'],
  aac: ['-c:a', 'aac', '-f', 'adts'],
  aiff: ['-f', 'aiff'],
};

let folder: string;
const files: Record<string, Buffer> = {};

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'formats-'));
  const source = join(folder, 'tone.wav');
  writeFileSync(source, toneWav(SECONDS));
  for (const [name, args] of Object.entries(FORMATS)) {
    const target = join(folder, name.replaceAll(' ', '-'));
    const { status, stderr } = spawnSync('ffmpeg', ['-v', 'error', '-i', source, ...args, target], {
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`${name}: ${stderr}`);
    files[name] = readFileSync(target);
  }
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe.each([true, false])('with ffmpeg: %s', (ffmpeg) => {
  let engine: RunningEngine;

  beforeAll(async () => {
    engine = await startEngine({ decode: { ffmpeg }, listen: { waiting: 64 }, limits: { keepSeconds: 0.001 } });
  });

  afterAll(async () => await engine?.stop());

  const measure = async (body: Uint8Array, query = '') => {
    const { status, json } = await requestSocket(engine.socket, 'POST', `/audio${query}`, body);
    return { status, ...(json as { durationMs?: number; channels?: number; code?: string }) };
  };

  it('says how it decodes', async () => {
    const { json } = await requestSocket(engine.socket, 'GET', '/health');
    expect(json).toMatchObject({
      listen: { decoder: ffmpeg ? 'ffmpeg' : 'audio-decode', isolation: expect.stringMatching(/^(bubblewrap|none)$/) },
    });
  });

  it('makes FLAC, Opus and AAC with it, and says what is missing without', async () => {
    for (const encoding of ['flac', 'opus', 'aac']) {
      const asked = JSON.stringify({ text: 'Good morning.', encoding });
      const { status, json } = await requestSocket(engine.socket, 'POST', '/speak', asked);
      expect(status).toBe(ffmpeg ? 200 : 422);
      if (!ffmpeg) expect(json).toMatchObject({ message: expect.stringMatching(/needs FFmpeg.*package ffmpeg/) });
    }
  });

  it.each(Object.keys(FORMATS))('%s', async (name) => {
    const answer = await measure(files[name] ?? Buffer.alloc(0));
    expect(answer).toMatchObject({ status: 201, channels: 1 });
    // codecs pad by a frame or two
    expect(Math.abs((answer.durationMs ?? 0) - SECONDS * 1000)).toBeLessThan(120);
  });

  it('keeps channels apart when asked', async () => {
    expect(await measure(toneWav(1, 16_000, 3), '?multichannel=true')).toMatchObject({ channels: 3, durationMs: 1000 });
    expect(await measure(toneWav(1, 16_000, 3))).toMatchObject({ channels: 1, durationMs: 1000 });
    expect(await measure(toneWav(1, 16_000, 9), '?multichannel=true')).toMatchObject({
      status: 413,
      code: 'too_large',
    });
  });

  it('takes raw samples that are described', async () => {
    const samples = toneWav(1, 8000).subarray(44);
    expect(await measure(samples, '?encoding=linear16&sample_rate=8000')).toMatchObject({ durationMs: 1000 });
    expect(await measure(samples, '?encoding=mulaw&sample_rate=8000')).toMatchObject({ durationMs: 2000 });
    expect(await measure(samples)).toMatchObject({ status: 400, code: 'unsupported_audio' });
  });

  it('takes samples for what they are said to be, whatever they look like', async () => {
    const samples = toneWav(1, 8000).subarray(44);
    // -1, as quiet recordings often begin: with what follows it could be a frame of MP3
    samples.set([0xff, 0xff, 0x00, 0x00]);
    expect(await measure(samples, '?encoding=linear16&sample_rate=8000')).toMatchObject({
      status: 201,
      durationMs: 1000,
    });
  });

  it.each([3, 5, 8])('gives each of %i channels its own sound', async (channels) => {
    const place = mkdtempSync(join(tmpdir(), 'channels-'));
    try {
      const path = join(place, 'input');
      const sound = toneWav(1, 16_000, channels);
      writeFileSync(path, sound);
      const decoder = new Decoder(ffmpeg ? { ffmpeg: 'ffmpeg', ffprobe: 'ffprobe' } : undefined, (command) => command);
      const { files: heard, durationMs } = await decoder.decode(
        { folder: place, path, bytes: sound.length, sha256: '', head: sound.subarray(0, 4096) },
        {
          multichannel: true,
          raw: undefined,
          maxSeconds: 10,
          maxBillableMs: undefined,
          maxChannels: 8,
          timeoutMs: 30_000,
        },
        new AbortController().signal,
      );
      expect(durationMs).toBe(1000);
      const wanted = Array.from({ length: channels }, (_, channel) => 220 * (channel + 1));
      const pitches = heard.map((file) => Math.round(pitch(readFileSync(file).subarray(44)) / 20) * 20);
      expect(pitches).toEqual(wanted);
    } finally {
      rmSync(place, { recursive: true });
    }
  });

  it('refuses what only looks like audio', async () => {
    for (const head of ['RIFF\0\0\0\0WAVE', 'OggS', 'fLaC', 'ID3', '\0\0\0\x18ftypM4A ', '\x1aE\xdf\xa3', 'caff']) {
      const body = Buffer.concat([Buffer.from(head, 'latin1'), Buffer.alloc(3000, 0xa5)]);
      expect(await measure(body), head).toMatchObject({ status: 400, code: 'unsupported_audio' });
    }
  });
});

/** Of one second of 16-bit samples: how often it goes up through zero. */
function pitch(samples: Buffer): number {
  let ups = 0;
  for (let at = 2; at + 1 < samples.length; at += 2) {
    if (samples.readInt16LE(at - 2) < 0 && samples.readInt16LE(at) >= 0) ups++;
  }
  return ups;
}

describe('confinement', () => {
  it('shows a decoder neither the machine’s files nor its network', async () => {
    const { name, confine } = await openConfinement();
    if (name === 'none') throw new Error('bubblewrap does not work here: install it, or allow user namespaces');
    const shell = (script: string) => {
      const { program, args } = confine({ program: '/bin/sh', args: ['-c', script] }, folder);
      return spawnSync(program, args, { encoding: 'utf8' });
    };
    expect(shell('ls').stdout).toContain('tone.wav');
    expect(shell('touch made-here').status).toBe(0);
    expect(shell('cat /etc/passwd').status).not.toBe(0);
    expect(shell(`ls ${process.cwd()}`).status).not.toBe(0);
    expect(shell('touch /usr/x').status).not.toBe(0);
    expect(shell(': <>/proc/sys/kernel/core_pattern').status).not.toBe(0);
    expect(shell('cat /proc/net/dev').stdout).not.toMatch(/eth|ens|wlan/);
    expect(
      shell('kill -0 1 && ls /proc')
        .stdout.split('\n')
        .filter((entry) => /^\d+$/.test(entry)).length,
    ).toBeLessThan(6);
  });
});
