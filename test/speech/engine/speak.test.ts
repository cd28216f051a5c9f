import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createEncoder, toAlaw, toMulaw } from '../../../builtin-tenants/speech/engine/speak/encode.ts';
import { chooseFormat } from '../../../builtin-tenants/speech/engine/speak/format.ts';
import { cutSentences } from '../../../builtin-tenants/speech/engine/speak/sentences.ts';
import { readModel } from '../../../builtin-tenants/speech/engine/speak/voice.ts';

describe('cutting text', () => {
  it.each([
    'One. Two! Three?',
    'A sentence, with a comma, that starts soon. And another one.',
    `${'word '.repeat(300)}end.`,
    'x'.repeat(1999),
    '😀'.repeat(700),
    'Dr. Smith paid 3.50 dollars.\n\nHe left.',
  ])('loses nothing: %.40s', (text) => {
    const pieces = cutSentences(text);
    expect(pieces.join('').replace(/\s/g, '')).toBe(text.replace(/\s/g, ''));
    for (const piece of pieces) {
      expect(piece.length).toBeLessThanOrEqual(240);
      expect(piece.isWellFormed()).toBe(true);
    }
  });

  it('ends the first piece early, so that the first sound comes early', () => {
    const [first] = cutSentences(
      'The weather was warm this morning, and many people went to the park to enjoy the sun.',
    );
    expect(first).toBe('The weather was warm this morning,');
  });

  it('finds nothing to speak in white space', () => {
    expect(cutSentences(' \n\t ')).toEqual([]);
  });
});

describe('formats', () => {
  it('is MP3 by default', () => {
    expect(chooseFormat({})).toMatchObject({ encoding: 'mp3', bitRate: 48_000, contentType: 'audio/mpeg' });
  });

  it.each([
    [{ encoding: 'mp3', bitRate: 64_000 }, /bit_rate=64000.*32000, 48000/],
    [{ encoding: 'mp3', container: 'wav' }, /container=wav/],
    [{ encoding: 'linear16', sampleRate: 11_025 }, /sample_rate=11025/],
    [{ encoding: 'mulaw', sampleRate: 24_000 }, /sample_rate=24000.*8000, 16000/],
    [{ encoding: 'speex' }, /encoding=speex.*mp3, linear16, mulaw, alaw, flac, opus, aac/],
    [{ encoding: 'flac', sampleRate: 24_000 }, /sample_rate=24000.*8000, 16000, 22050, 32000, 48000/],
    [{ encoding: 'opus', container: 'wav' }, /container=wav.*ogg/],
    [{ encoding: 'opus', bitRate: 650_000 }, /bit_rate=650000.*4000 to 256000/],
    [{ encoding: 'aac', sampleRate: 48_000 }, /sample_rate=48000.*22050/],
  ])('refuses %j and names what is possible', (request, message) => {
    expect(() => chooseFormat(request)).toThrow(message);
  });

  it('writes a WAV header once, then samples', async () => {
    const made: Buffer[] = [];
    const format = chooseFormat({ encoding: 'linear16', sampleRate: 16_000 });
    const encoder = await createEncoder(format, 16_000, (bytes) => made.push(Buffer.from(bytes)));
    encoder.push(new Int16Array([1000, -1000]));
    encoder.push(new Int16Array([5]));
    await encoder.end();
    const [first = Buffer.alloc(0), second = Buffer.alloc(0), rest] = made;
    expect(first.toString('latin1', 0, 4)).toBe('RIFF');
    expect(first.readUInt32LE(24)).toBe(16_000);
    expect([first.readInt16LE(44), first.readInt16LE(46)]).toEqual([1000, -1000]);
    expect(second.length).toBe(2);
    expect(rest?.length).toBe(0);
  });
});

describe('G.711', () => {
  // reference decoders after ITU-T G.191
  const fromMulaw = (code: number) => {
    const byte = ~code & 0xff;
    const magnitude = ((((byte & 0x0f) << 3) + 0x84) << ((byte & 0x70) >> 4)) - 0x84;
    return byte & 0x80 ? -magnitude : magnitude;
  };
  const fromAlaw = (code: number) => {
    const byte = code ^ 0x55;
    const exponent = (byte & 0x70) >> 4;
    const mantissa = ((byte & 0x0f) << 4) + 8;
    const magnitude = exponent === 0 ? mantissa : (mantissa + 0x100) << (exponent - 1);
    return byte & 0x80 ? magnitude : -magnitude;
  };

  it('comes back within the step of its segment, over the whole range', () => {
    for (let sample = -32_768; sample <= 32_767; sample += 7) {
      const step = Math.max(16, Math.abs(sample) / 16);
      expect(Math.abs(fromMulaw(toMulaw(sample)) - sample), `µ-law ${sample}`).toBeLessThanOrEqual(step + 140);
      expect(Math.abs(fromAlaw(toAlaw(sample)) - sample), `A-law ${sample}`).toBeLessThanOrEqual(step + 16);
    }
    expect([toMulaw(0), toAlaw(0)]).toEqual([0xff, 0xd5]);
  });
});

describe('models', () => {
  it.each([
    [undefined, { language: 'en', substituted: false }],
    ['aura-2-thalia-en', { language: 'en', substituted: true }],
    ['aura-2-celeste-es', { language: 'es', substituted: true }],
    ['espeak-ng-pt-br', { engine: 'espeak-ng', language: 'pt-br', substituted: false }],
    ['flite-slt', { engine: 'flite', name: 'slt', substituted: false }],
    ['nonsense', { language: 'en', substituted: true }],
  ])('%s', (model, wanted) => {
    expect(readModel(model)).toMatchObject(wanted);
  });
});

describe('flite', () => {
  let folder: string;
  const { PATH } = process.env;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'speak-'));
    vi.resetModules();
  });

  afterEach(() => {
    process.env.PATH = PATH;
    rmSync(folder, { recursive: true, force: true });
  });

  it('works in the spool, which the next start empties, and leaves nothing there', async () => {
    const [bin, spool] = [join(folder, 'bin'), join(folder, 'spool')];
    for (const made of [bin, spool]) mkdirSync(made);
    // For machines without it: names a voice, and makes silence.
    const program = `#!/bin/sh
[ "$1" = -lv ] && echo 'Voices available: rms' && exit
while [ "$1" != -o ]; do shift; done
printf 'data\\004\\000\\000\\000\\000\\000\\000\\000' > "$2"
`;
    writeFileSync(join(bin, 'flite'), program, { mode: 0o755 });
    process.env.PATH = `${PATH}:${bin}`;
    const { openFlite } = await import('../../../builtin-tenants/speech/engine/speak/flite.ts');
    const voice = await openFlite(spool);
    let files: string[] = [];
    voice?.synthesize('Hello.', voice.voiceFor('en') ?? '', 1, () => {
      files = readdirSync(spool, { recursive: true, encoding: 'utf8' }).map((name) => basename(name));
    });
    expect(files.toSorted()).toEqual([expect.stringMatching(/^flite-/), 'speech.wav', 'text']);
    expect(readdirSync(spool)).toEqual([]);
  });
});
