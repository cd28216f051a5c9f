import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { recognizeContainer } from '../../../builtin-tenants/speech/engine/audio/container.ts';
import { ffmpegArguments } from '../../../builtin-tenants/speech/engine/audio/decode.ts';
import { Resampler } from '../../../builtin-tenants/speech/engine/audio/resample.ts';
import { extractChannel, readWavFacts } from '../../../builtin-tenants/speech/engine/audio/wav.ts';
import { toneWav } from '../harness/sound.ts';

const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'latin1'));

describe('containers', () => {
  it.each([
    ['RIFF\x00\x00\x00\x00WAVEfmt ', 'wav', 'wav'],
    ['FORM\x00\x00\x00\x00AIFF', 'aiff', 'aiff'],
    ['fLaC\x00', 'flac', 'flac'],
    [`OggS${'\0'.repeat(24)}OpusHead`, 'ogg', 'opus'],
    [`OggS${'\0'.repeat(24)}\x01vorbis`, 'ogg', 'oga'],
    ['\0\0\0\x20ftypM4A ', 'mov', 'm4a'],
    ['\x1a\x45\xdf\xa3', 'matroska', 'webm'],
    ['ID3\x04', 'mp3', 'mp3'],
    ['\xff\xfb\x90\x64', 'mp3', 'mp3'],
    ['\xff\xf1\x50\x80', 'aac', 'aac'],
    ['caff\0\x01', 'caf', 'caf'],
    ['#!AMR\n', 'amr', 'amr'],
  ])('%j is opened with one demuxer', (head, demuxer, portable) => {
    expect(recognizeContainer(bytes(head))).toMatchObject({ demuxer, portable });
  });

  it.each([
    '#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd',
    "ffconcat version 1.0\nfile '/etc/passwd'",
    '[playlist]\nFile1=http://10.0.0.1/',
    'v=0\r\no=- 0 0 IN IP4 127.0.0.1',
    '<?xml version="1.0"?><MPD>',
    'RIFF\0\0\0\0AVI LIST',
    '\x89PNG\r\n',
    'PK\x03\x04',
    '\xff\xff\xff\xff',
    '',
  ])('%j is not opened at all', (head) => {
    expect(recognizeContainer(bytes(head))).toBeUndefined();
  });
});

describe('samples that the caller describes', () => {
  it('are no MP3 or AAC because they begin with -1', () => {
    for (const head of ['\xff\xff\x00\x00', '\xff\xfb\x90\x64', '\xff\xf1\x50\x80']) {
      expect(recognizeContainer(bytes(head))).toBeDefined();
      expect(recognizeContainer(bytes(head), true)).toBeUndefined();
    }
    expect(recognizeContainer(bytes('RIFF\0\0\0\0WAVEfmt '), true)).toMatchObject({ name: 'wav' });
  });
});

describe('the command line of ffmpeg', () => {
  const container = { name: 'mp3', demuxer: 'mp3' };

  it('forces the demuxer, local files and an end', () => {
    const args = ffmpegArguments('/spool/in', container, '/spool/out.wav', { multichannel: false, raw: undefined }, 61);
    const text = args.join(' ');
    expect(text).toContain('-protocol_whitelist file,pipe -f mp3 -i file:/spool/in');
    expect(text).toContain('-t 61');
    expect(text).toContain('-max_alloc');
    expect(text).toContain('-ac 1');
    expect(args.indexOf('-f')).toBeLessThan(args.indexOf('-i'));
  });

  it('keeps channels apart when asked, and describes raw samples', () => {
    const raw = { encoding: 'mulaw', sampleRate: 8000, channels: 2 } as const;
    const text = ffmpegArguments('/in', undefined, '/out', { multichannel: true, raw }, 61).join(' ');
    expect(text).toContain('-f mulaw -ar 8000 -ac 2 -i file:/in');
    expect(text.slice(text.indexOf('-i ')).includes('-ac')).toBe(false);
  });
});

describe('resampling', () => {
  it.each([
    [22_050, 24_000],
    [44_100, 16_000],
    [16_000, 8000],
  ])('%i to %i keeps a tone and its level, however it is cut', (from, to) => {
    const tone = Float32Array.from({ length: from }, (_, at) => 0.5 * Math.sin((2 * Math.PI * 440 * at) / from));
    const resampler = new Resampler(from, to);
    const output: number[] = [];
    for (let at = 0; at < tone.length; at += 700) output.push(...resampler.push(tone.subarray(at, at + 700)));
    expect(Math.abs(output.length - to)).toBeLessThan(64);
    const steady = output.slice(200, -200);
    const crossings = steady.filter((value, at) => at > 0 && value >= 0 && (steady[at - 1] ?? 0) < 0).length;
    expect(Math.abs(crossings / (steady.length / to) - 440)).toBeLessThan(4);
    const level = Math.sqrt(steady.reduce((sum, value) => sum + value * value, 0) / steady.length);
    expect(level).toBeCloseTo(0.5 / Math.SQRT2, 2);
  });

  it('lets no tone above half the new rate through', () => {
    const tone = Float32Array.from({ length: 16_000 }, (_, at) => Math.sin((2 * Math.PI * 6000 * at) / 16_000));
    const output = new Resampler(16_000, 8000).push(tone).subarray(200, -200);
    expect(Math.max(...output.map(Math.abs))).toBeLessThan(0.05);
  });
});

describe('channels', () => {
  it('are taken apart sample by sample', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'wav-'));
    try {
      const source = join(folder, 'both.wav');
      writeFileSync(source, toneWav(0.5, 16_000, 2));
      const facts = await readWavFacts(source);
      expect(facts).toEqual({ channels: 2, sampleRate: 16_000, frames: 8000, start: 44 });
      const target = join(folder, 'second.wav');
      await extractChannel(source, target, { ...facts, channel: 1 });
      const both = readFileSync(source);
      const second = readFileSync(target);
      expect(second.length).toBe(44 + 16_000);
      for (const frame of [0, 1, 777, 7999]) {
        expect(second.readInt16LE(44 + frame * 2)).toBe(both.readInt16LE(44 + frame * 4 + 2));
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
