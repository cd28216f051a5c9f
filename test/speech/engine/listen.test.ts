import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { quietestPlace } from '../../../builtin-tenants/speech/engine/listen/pieces.ts';
import { parsePocketsphinx } from '../../../builtin-tenants/speech/engine/listen/pocketsphinx.ts';
import {
  describeModel,
  jobOf,
  modelArguments,
  parseSherpaOnnx,
} from '../../../builtin-tenants/speech/engine/listen/sherpa-onnx.ts';
import { openWhisperCpp, parseWhisperCpp } from '../../../builtin-tenants/speech/engine/listen/whisper-cpp.ts';

describe('pocketsphinx', () => {
  it('gives words without marks, silence and pronunciations', () => {
    const output = `in our store
<s> 0.000 0.140 1.000000
in 0.150 0.270 0.556400
our(2) 0.280 0.550 1.000200
<sil> 0.560 0.900 0.636066
[NOISE] 0.910 1.000 0.100000
++BREATH++ 1.000 1.100 0.100000
store 1.110 1.280 0.100100
</s> 1.290 1.720 0.099314
`;
    expect(parsePocketsphinx(output)).toEqual([
      { word: 'in', start: 0.15, end: 0.27, confidence: 0.5564 },
      { word: 'our', start: 0.28, end: 0.55, confidence: 1 },
      { word: 'store', start: 1.11, end: 1.28, confidence: 0.1001 },
    ]);
  });

  it('hears nothing in silence', () => {
    expect(parsePocketsphinx('\n<s> 0.0 0.1 1.0\n')).toEqual([]);
  });
});

describe('whisper.cpp', () => {
  it.each([
    ['multi', 'auto', []],
    ['pt-BR', 'pt', []],
    ['EN', 'en', []],
    [undefined, 'auto', []],
    ['tlh', 'auto', ['language=tlh: whisper has no such language; it was detected']],
  ])('asked for %s it is told %s', async (language, told, warnings) => {
    const folder = mkdtempSync(join(tmpdir(), 'whisper-'));
    try {
      const program = join(folder, 'whisper-cli');
      const json = '{"result":{"language":"\'$6\'"},"transcription":[]}';
      // as the real one: a language that it does not have ends it without a result
      writeFileSync(program, `#!/bin/sh\ncase "$6" in auto|pt|en) echo '${json}' > ${folder}/whisper.json;; esac\n`);
      chmodSync(program, 0o755);
      const model = join(folder, 'model.bin');
      writeFileSync(model, '');
      const { transcribe } = await openWhisperCpp(model, program, 1);
      const { signal } = new AbortController();
      const job = { file: join(folder, 'a.wav'), folder, durationMs: 1000, language, signal, timeoutMs: 5000 };
      expect(await transcribe(job)).toEqual({ words: [], language: told, warnings });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  const token = (text: string, from: number, to: number, p = 0.9) => ({ text, offsets: { from, to }, p });

  it('joins tokens to words', () => {
    const { words, language } = parseWhisperCpp(
      JSON.stringify({
        result: { language: 'en' },
        transcription: [
          {
            text: ' And so, my fellow',
            offsets: { from: 0, to: 900 },
            tokens: [
              token('[_BEG_]', 0, 0),
              token(' And', 0, 300, 0.8),
              token(' so', 300, 500),
              token(',', 500, 520, 0.5),
              token(' fel', 600, 700),
              token('low', 700, 900),
              token('[_TT_150]', 900, 900),
            ],
          },
          { text: ' Ask', offsets: { from: 1000, to: 1200 }, tokens: [{ text: ' Ask', p: 0.9 }] },
        ],
      }),
    );
    expect(language).toBe('en');
    expect(words).toEqual([
      { word: 'and', punctuated: 'And', start: 0, end: 0.3, confidence: 0.8 },
      { word: 'so', punctuated: 'so,', start: 0.3, end: 0.52, confidence: 0.7 },
      { word: 'fellow', punctuated: 'fellow', start: 0.6, end: 0.9, confidence: 0.9 },
      { word: 'ask', punctuated: 'Ask', start: 1, end: 1.2, confidence: 0.9 },
    ]);
  });

  it('puts characters together that are cut in two', () => {
    const bytes = (text: string) => Buffer.from(text).toString('latin1');
    const [first = '', second = ''] = [bytes(' é').slice(0, 2), bytes(' é').slice(2)];
    const { words } = parseWhisperCpp(
      JSON.stringify({
        transcription: [
          { offsets: { from: 0, to: 500 }, tokens: [token(first, 0, 200), token(`${second}t${bytes('é')}`, 200, 500)] },
        ],
      }),
    );
    expect(words).toEqual([{ word: 'été', punctuated: 'été', start: 0, end: 0.5, confidence: 0.9 }]);
  });

  it('reads what the program writes', () => {
    // whisper-cli 1.9.1 with a model whose weights were made so that it hears this sentence in any audio
    const file = new URL('recorded/whisper-cli-1.9.1.json', import.meta.url);
    const { words, language } = parseWhisperCpp(readFileSync(file, 'latin1'));
    expect(language).toBe('en');
    expect(words.map(({ punctuated }) => punctuated).join(' ')).toBe('And so, my fellow café.');
    expect(words[1]).toEqual({ word: 'so', punctuated: 'so,', start: 1.37, end: 3.02, confidence: 1 });
  });

  it('refuses another program’s output', () => {
    expect(() => parseWhisperCpp('{"text":"hello"}')).toThrow();
  });
});

describe('sherpa-onnx', () => {
  it.each([
    [
      'sherpa-onnx-zipformer-small-en',
      [
        'tokens.txt',
        'encoder-epoch-99.onnx',
        'encoder-epoch-99.int8.onnx',
        'decoder-epoch-99.onnx',
        'joiner-epoch-99.onnx',
      ],
      'transducer',
      '--encoder=/m/sherpa-onnx-zipformer-small-en/encoder-epoch-99.int8.onnx',
    ],
    [
      'sherpa-onnx-whisper-tiny.en',
      ['tiny.en-tokens.txt', 'tiny.en-encoder.onnx', 'tiny.en-decoder.onnx'],
      'whisper',
      '--whisper-encoder=/m/sherpa-onnx-whisper-tiny.en/tiny.en-encoder.onnx',
    ],
    [
      'sherpa-onnx-sense-voice-zh-en',
      ['tokens.txt', 'model.int8.onnx'],
      'sense-voice',
      '--sense-voice-model=/m/sherpa-onnx-sense-voice-zh-en/model.int8.onnx',
    ],
    [
      'sherpa-onnx-nemo-ctc-en',
      ['tokens.txt', 'model.onnx'],
      'nemo-ctc',
      '--nemo-ctc-model=/m/sherpa-onnx-nemo-ctc-en/model.onnx',
    ],
    [
      'sherpa-onnx-zipformer-ctc-en',
      ['tokens.txt', 'model.int8.onnx'],
      'zipformer-ctc',
      '--zipformer-ctc-model=/m/sherpa-onnx-zipformer-ctc-en/model.int8.onnx',
    ],
    [
      'sherpa-onnx-paraformer-zh',
      ['tokens.txt', 'model.onnx'],
      'paraformer',
      '--paraformer=/m/sherpa-onnx-paraformer-zh/model.onnx',
    ],
  ])('%s is told by its files', (name, files, kind, argument) => {
    const model = describeModel(`/m/${name}`, files);
    expect(model.kind).toBe(kind);
    expect(modelArguments(model, { threads: 2 })).toEqual(expect.arrayContaining([argument, '--num-threads=2']));
  });

  it('describes a model to the package as to the program', () => {
    const whisper = describeModel('/m/x', ['tiny-tokens.txt', 'tiny-encoder.onnx', 'tiny-decoder.onnx']);
    const options = { threads: 1, language: 'pt-BR' };
    expect(modelArguments(whisper, options)).toEqual([
      '--tokens=/m/x/tiny-tokens.txt',
      '--whisper-encoder=/m/x/tiny-encoder.onnx',
      '--whisper-decoder=/m/x/tiny-decoder.onnx',
      '--whisper-language=pt',
      '--num-threads=1',
    ]);
    expect(modelArguments(whisper, { ...options, language: 'multi' }).join(' ')).not.toContain('language');
    expect(jobOf(whisper, options).config).toEqual({
      modelConfig: {
        whisper: { encoder: '/m/x/tiny-encoder.onnx', decoder: '/m/x/tiny-decoder.onnx', language: 'pt' },
        tokens: '/m/x/tiny-tokens.txt',
        numThreads: 1,
      },
    });
    const sense = describeModel('/m/sense-voice', ['tokens.txt', 'model.onnx']);
    expect(jobOf(sense, options).config).toEqual({
      modelConfig: {
        senseVoice: { model: '/m/sense-voice/model.onnx' },
        tokens: '/m/sense-voice/tokens.txt',
        numThreads: 1,
      },
    });
  });

  it.each([
    [
      'sherpa-onnx-streaming-zipformer-en-2023-06-26',
      ['tokens.txt', 'encoder-chunk-16.int8.onnx', 'decoder-chunk-16.onnx', 'joiner-chunk-16.onnx'],
      'transducer',
      'transducer',
    ],
    [
      'sherpa-onnx-streaming-paraformer-bilingual-zh-en',
      ['tokens.txt', 'encoder.int8.onnx', 'decoder.int8.onnx'],
      'paraformer',
      'paraformer',
    ],
    [
      'sherpa-onnx-streaming-zipformer-ctc-multi-zh-hans-2023-12-13',
      ['tokens.txt', 'ctc-epoch-20-avg-1-chunk-16-left-128.int8.onnx'],
      'zipformer-ctc',
      'zipformer2Ctc',
    ],
    ['sherpa-onnx-nemo-streaming-fast-conformer-ctc-en-80ms', ['tokens.txt', 'model.onnx'], 'nemo-ctc', 'nemoCtc'],
    ['sherpa-onnx-streaming-t-one-russian-2025-09-08', ['tokens.txt', 'model.onnx'], 't-one-ctc', 'toneCtc'],
  ])('%s streams', (name, files, kind, group) => {
    const model = describeModel(`/m/${name}`, files);
    expect(model).toMatchObject({ kind, streams: true });
    expect(jobOf(model, { threads: 1 })).toMatchObject({
      streams: true,
      config: { modelConfig: { [group]: model.parts, tokens: `/m/${name}/tokens.txt` } },
    });
  });

  it('says what is missing', () => {
    expect(() => describeModel('/m/x', ['model.onnx'])).toThrow(/tokens\.txt/);
    expect(() => describeModel('/m/x', ['tokens.txt'])).toThrow(/no model/);
  });

  it('joins tokens to words, in both notations', () => {
    const output = `log line\n{"lang": "<|en|>", "text": " Hello world", "timestamps": [0.10, 0.30, 0.50], "tokens":["▁Hel", "lo", "▁world"], "ys_log_probs": [0, -0.2, -0.693147], "words": []}\n`;
    expect(parseSherpaOnnx(output, 1000)).toEqual({
      language: 'en',
      words: [
        { word: 'hello', punctuated: 'Hello', start: 0.1, end: 0.5, confidence: expect.closeTo(0.905, 3) },
        { word: 'world', punctuated: 'world', start: 0.5, end: 0.8, confidence: expect.closeTo(0.5, 3) },
      ],
    });
  });

  it('adds pieces up, ends words at pauses, and says what the model did not tell', () => {
    const line = (from: number, to: number, tokens: string[], timestamps: number[]) =>
      JSON.stringify({ text: tokens.join(''), tokens, timestamps, ys_log_probs: [], lang: '', from, to });
    const output = [
      line(0, 20, [' ', 'a', ' ', 'b', 'c'], [0, 1, 3, 3.2, 3.3]),
      line(20, 27.5, [], []),
      line(27.5, 28, [' ', 'd'], [0.04, 0.48]),
    ].join('\n');
    expect(parseSherpaOnnx(output, 28_000)).toEqual({
      words: [
        { word: 'a', punctuated: 'a', start: 1, end: 1.3, confidence: 1 },
        { word: 'bc', punctuated: 'bc', start: 3.2, end: expect.closeTo(3.6), confidence: 1 },
        { word: 'd', punctuated: 'd', start: 27.98, end: 28, confidence: 1 },
      ],
      warnings: ['confidence: the model gives none; 1 stands for unknown'],
    });
  });

  it('hears nothing in silence, and a program that said nothing failed', () => {
    expect(parseSherpaOnnx('{"text": "", "timestamps": [0.00], "tokens": [" "]}', 1000)).toEqual({ words: [] });
    expect(() => parseSherpaOnnx('', 1000)).toThrow(/no result/);
  });

  it('lays words out evenly where the model knows no times', () => {
    const { words, warnings } = parseSherpaOnnx(
      '{"text": "One, two.", "timestamps": [], "tokens": ["One", ",", " two", "."]}',
      2000,
    );
    expect(warnings).toEqual([
      'start: the model gives no times; words are laid out evenly',
      'confidence: the model gives none; 1 stands for unknown',
    ]);
    expect(words.map(({ word, start, end }) => [word, start, end])).toEqual([
      ['one', 0, 1],
      ['two', 1, 2],
    ]);
  });
});

describe('long audio', () => {
  it('is cut in the quietest gap of the last seconds', () => {
    const rate = 16_000;
    const samples = Float32Array.from({ length: 28 * rate }, (_, at) => (at % 2 === 0 ? 0.5 : -0.5));
    samples.fill(0, 5 * rate, 6 * rate);
    samples.fill(0.01, 23 * rate, 23.3 * rate);
    const place = quietestPlace(samples, rate) / rate;
    expect(place).toBeGreaterThan(23);
    expect(place).toBeLessThan(23.3);
    // where nothing differs the piece stays long
    expect(quietestPlace(samples.fill(0), rate) / rate).toBeGreaterThan(27.8);
  });
});
