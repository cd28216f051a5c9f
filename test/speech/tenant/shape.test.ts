import { describe, expect, it } from 'vitest';
import type { Transcript } from '../../../builtin-tenants/speech/src/engines/engine.ts';
import { wordsOf } from '../../../builtin-tenants/speech/src/engines/openai.ts';
import { readListenOptions } from '../../../builtin-tenants/speech/src/options/listen.ts';
import { readableText, shapeResults } from '../../../builtin-tenants/speech/src/shape/listen.ts';
import { unknownOptions, warning } from '../../../builtin-tenants/speech/src/warnings.ts';

const word = (text: string, start: number, end: number) => ({
  word: text.toLowerCase().replace(/\W/g, ''),
  punctuated: text,
  start,
  end,
  confidence: 0.5,
});

const SPOKEN: Transcript = {
  kind: 'transcript',
  sha256: 'ab',
  durationMs: 6000,
  billableMs: 6000,
  language: 'en',
  model: { name: 'm', version: '1', arch: 'a' },
  punctuates: true,
  channels: [
    {
      words: [
        word('Hello', 0, 0.4),
        word('there.', 0.5, 0.9),
        word('How', 1.0, 1.2),
        word('are', 1.2, 1.4),
        word('you?', 1.4, 1.8),
        word('Fine.', 4, 4.4),
      ],
    },
  ],
  warnings: [],
};

const shape = (query: string, transcript = SPOKEN) => {
  let id = 0;
  return shapeResults(transcript, readListenOptions(new URLSearchParams(query)), () => `id-${++id}`);
};

describe('Deepgram’s shape', () => {
  it('is bare without punctuate', () => {
    const [channel] = shape('').channels;
    expect(channel?.alternatives[0]).toMatchObject({ transcript: 'hello there how are you fine', confidence: 0.5 });
    expect(JSON.stringify(channel)).not.toContain('punctuated_word');
    expect(shape('').utterances).toBeUndefined();
  });

  it('is written with punctuate', () => {
    const [channel] = shape('punctuate=true').channels;
    expect(channel?.alternatives[0]).toMatchObject({ transcript: 'Hello there. How are you? Fine.' });
    expect(channel?.alternatives[0]?.words).toContainEqual({
      word: 'there',
      punctuated_word: 'there.',
      start: 0.5,
      end: 0.9,
      confidence: 0.5,
    });
  });

  it('cuts utterances at pauses of utt_split', () => {
    expect(shape('utterances=true').utterances?.map(({ transcript }) => transcript)).toEqual([
      'hello there how are you',
      'fine',
    ]);
    expect(shape('utterances=true&utt_split=0.05').utterances).toHaveLength(4);
    expect(shape('utterances=true').utterances?.[1]).toMatchObject({ start: 4, end: 4.4, channel: 0, id: 'id-2' });
  });

  it('makes paragraphs of sentences', () => {
    const [channel] = shape('paragraphs=true').channels;
    expect(channel?.alternatives[0]?.paragraphs).toMatchObject({
      transcript: 'Hello there. How are you?\n\nFine.',
      paragraphs: [
        { sentences: [{ text: 'Hello there.' }, { text: 'How are you?' }], num_words: 5, start: 0, end: 1.8 },
        { sentences: [{ text: 'Fine.' }], num_words: 1 },
      ],
    });
  });

  it('interleaves utterances of channels by time', () => {
    const two = { ...SPOKEN, channels: [...SPOKEN.channels, { words: [word('Yes.', 2.5, 2.9)] }] };
    expect(shape('utterances=true&multichannel=true', two).utterances?.map(({ channel }) => channel)).toEqual([
      0, 1, 0,
    ]);
  });

  it('names a language only where it was detected', () => {
    const [heard] = shape('detect_language=true').channels;
    expect(heard?.detected_language).toBe('en');
    const fixed = { ...SPOKEN, model: { ...SPOKEN.model, arch: 'pocketsphinx' } };
    expect(shape('detect_language=true', fixed).channels[0]).not.toHaveProperty('detected_language');
    expect(shape('', SPOKEN).channels[0]).not.toHaveProperty('detected_language');
  });

  it('says nothing well', () => {
    const silent = { ...SPOKEN, channels: [{ words: [] }] };
    expect(shape('utterances=true&paragraphs=true', silent)).toMatchObject({
      channels: [{ alternatives: [{ transcript: '', confidence: 0, words: [], paragraphs: { paragraphs: [] } }] }],
      utterances: [],
    });
  });

  it('makes sentences for readers from pauses where nothing is punctuated', () => {
    expect(readableText({ ...SPOKEN, punctuates: false })).toBe('Hello there how are you. Fine.');
    expect(readableText(SPOKEN)).toBe('Hello there. How are you? Fine.');
  });
});

describe('words of OpenAI-compatible servers', () => {
  it('may sit at the top or in segments', () => {
    const words = [{ word: ' Hi,', start: 0, end: 0.2, probability: 0.7 }];
    const segment = { start: 0, end: 1, text: ' Hi,' };
    const wanted = [{ word: 'hi', punctuated: 'Hi,', start: 0, end: 0.2, confidence: 0.7 }];
    expect(wordsOf({ text: '', words })).toEqual(wanted);
    expect(wordsOf({ text: '', segments: [{ ...segment, words }] })).toEqual(wanted);
    expect(wordsOf({ text: '', words: [], segments: [{ ...segment, words }] })).toEqual(wanted);
  });

  it('are laid out over their segment where there are none', () => {
    expect(wordsOf({ text: '', segments: [{ start: 1, end: 3, text: ' One two.', avg_logprob: 0 }] })).toEqual([
      { word: 'one', punctuated: 'One', start: 1, end: 2, confidence: 1 },
      { word: 'two', punctuated: 'two.', start: 2, end: 3, confidence: 1 },
    ]);
  });
});

describe('warnings', () => {
  it('name the parameter', () => {
    expect(warning('model=nova-3: transcribed by x')).toEqual({
      parameter: 'model',
      type: 'unsupported_option',
      message: 'model=nova-3: transcribed by x',
    });
    expect(warning('diarize: not supported by x')).toMatchObject({
      parameter: 'diarize',
      message: 'not supported by x',
    });
    expect(unknownOptions(['<b>Colour']).map(warning)).toEqual([
      { parameter: 'bcolour', type: 'unsupported_option', message: 'unknown, ignored' },
    ]);
  });
});
