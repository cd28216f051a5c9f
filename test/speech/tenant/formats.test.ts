/** What `numerals`, `smart_format`, `replace` and `search` make of what was heard. */
import { describe, expect, it } from 'vitest';
import { readListenOptions } from '../../../builtin-tenants/speech/src/options/listen.ts';
import { formatWarnings, shapeResults } from '../../../builtin-tenants/speech/src/shape/listen.ts';
import { withFormats } from '../../../builtin-tenants/speech/src/shape/live.ts';
import { writeNumbers } from '../../../builtin-tenants/speech/src/shape/numbers.ts';
import { bareWord } from '../../../builtin-tenants/speech/src/shape/words.ts';
import { expectTime } from '../../times.ts';

const said = (text: string) =>
  text.split(' ').map((each, at) => ({
    word: bareWord(each),
    punctuated: each,
    start: at,
    end: at + 0.5,
    confidence: 0.5,
  }));
const options = (query: string) => readListenOptions(new URLSearchParams(query));
const heard = (text: string, { language = 'en', punctuates = true } = {}) => ({
  kind: 'transcript' as const,
  sha256: '',
  durationMs: 1000,
  billableMs: 1000,
  language,
  model: { name: 'm', version: '1', arch: 'a' },
  punctuates,
  channels: [{ words: said(text) }],
  warnings: [],
});
const shape = (text: string, query: string, how = {}) => {
  const [channel] = shapeResults(heard(text, how), options(query), () => 'id').channels;
  return channel as { alternatives: { transcript: string; words: object[] }[]; search?: object[] };
};

describe('smart_format', () => {
  it.each([
    ['It was nine hundred and ninety nine.', 'It was 999.'],
    ['Two hundred, three hundred.', '200, 300.'],
    ['one million two hundred thousand and five people', '1,200,005 people'],
    ['It costs twelve dollars and fifty cents.', 'It costs $12.50.'],
    ['fifty cents or five dollars', '$0.50 or $5'],
    ['five dollars and I left', '$5 and I left'],
    ['ten percent, twenty five percent', '10%, 25%'],
    ['25 percent and 3 percent', '25% and 3%'],
    ['three point one four', '3.14'],
    ['On march fifth twenty twenty six we met.', 'On March 5, 2026 we met.'],
    ['On March 5th, we met.', 'On March 5th, we met.'],
    ['january twenty first nineteen eighty four', 'January 21, 1984'],
    ['july fourth', 'July 4th'],
    ['in nineteen oh five and twenty ten', 'in 1905 and 2010'],
    ['march fifth two thousand and eight', 'March 5, 2008'],
    ['You may one day see march two by two.', 'You may one day see march two by two.'],
    ['at three thirty p m today', 'at 3:30 PM today'],
    ['at nine a.m. sharp', 'at 9:00 AM sharp'],
    ['at five oh five pm', 'at 5:05 PM'],
    ['call four one five five five five one two one two', 'call (415) 555-1212'],
    ['code nine oh two one oh', 'code 90210'],
    ['No one of the two came first.', 'No one of the two came first.'],
    ['the twenty-first of a hundred', 'the 21st of 100'],
    ['twelve hundred', '1200'],
    ['five a day', 'five a day'],
    ['between twenty and thirty', 'between 20 and 30'],
    ['nineteen hundred', '1900'],
    ['five six thousand', 'five 6000'],
    ['two thousand and nineteen dollars', '$2019'],
    ['four dollars five cents', '$4.05'],
    ['hundred and point and', 'hundred and point and'],
    ['one hundred and fifty cents', '150 cents'],
  ])('%s', (text, wanted) => {
    expect(shape(text, 'smart_format=true').alternatives[0]?.transcript).toBe(wanted);
  });

  it('loses no time and no confidence, and goes without punctuation', () => {
    const [alternative] = shape('it was nine hundred', 'smart_format=true', { punctuates: false }).alternatives;
    expect(alternative?.transcript).toBe('it was 900');
    expect(alternative?.words.at(-1)).toEqual({
      word: '900',
      punctuated_word: '900',
      start: 2,
      end: 3.5,
      confidence: 0.5,
    });
  });

  it('leaves other languages alone, and says so', () => {
    const asked = options('smart_format=true&numerals=true&language=de');
    expect(shape('zehn ten', 'smart_format=true&language=de').alternatives[0]?.transcript).toBe('zehn ten');
    expect(formatWarnings(asked, 'de')).toEqual([
      'numerals: numbers are put into digits in English only',
      'smart_format: numbers are put into digits in English only',
    ]);
    expect(formatWarnings(options('smart_format=true&language=en-GB'), undefined)).toEqual([]);
  });

  it('takes whatever is said, in linear time', () => {
    const vocabulary =
      'one two twenty hundred thousand million and point oh march fifth dollars cents percent a m p first 7 1,000 zero'.split(
        ' ',
      );
    let seed = 7;
    const next = () => {
      seed = (seed * 48_271) % 2_147_483_647;
      return vocabulary[seed % vocabulary.length] ?? '';
    };
    const words = said(Array.from({ length: 50_000 }, next).join(' '));
    const began = performance.now();
    for (const style of ['plain', 'smart'] as const) {
      const written = writeNumbers(words, style);
      expect(written[0]?.start).toBe(0);
      expect(written.at(-1)?.end).toBe(words.at(-1)?.end);
      expect(written.every(({ word }) => word !== '' && !/NaN|undefined|Infinity/i.test(word))).toBe(true);
    }
    for (const word of ['one', 'million', 'twenty', 'hundred', 'oh', 'thousand'])
      writeNumbers(said(`${word} `.repeat(50_000).trim()), 'smart');
    // Quadratic time would be minutes.
    expectTime('numbers of many words', performance.now() - began, 20_000);
  });
});

describe('numerals', () => {
  it('are digits and nothing else', () => {
    const { alternatives } = shape('it was nine hundred dollars at three p m', 'numerals=true');
    expect(alternatives[0]?.transcript).toBe('it was 900 dollars at 3 p m');
    expect(JSON.stringify(alternatives)).not.toContain('punctuated_word');
  });
});

describe('replace and search', () => {
  it('finds terms of several words, and keeps what ends a sentence', () => {
    const query = 'punctuate=true&replace=monday:Tuesday&replace=big+apple:New+York&replace=um';
    expect(shape('Um see the big apple on Monday.', query).alternatives[0]?.transcript).toBe(
      'see the New York on Tuesday.',
    );
  });

  it('tells where a term was said, by the words that were heard', () => {
    const { search } = shape(
      'the big apple, a Big Apple.',
      'search=big+apple&search=pear&search=pear&replace=big:small',
    );
    expect(search).toEqual([
      {
        query: 'big apple',
        hits: [
          { confidence: 0.5, start: 1, end: 2.5, snippet: 'big apple' },
          { confidence: 0.5, start: 4, end: 5.5, snippet: 'big apple' },
        ],
      },
      { query: 'pear', hits: [] },
    ]);
    expect(formatWarnings(options('search=a'), 'en')).toEqual(['search: found by exact words, not by sound']);
  });

  it.each(['replace=:x', `search=${'x'.repeat(201)}`, Array.from({ length: 101 }, () => 'search=a').join('&')])(
    'refuses %.40s',
    (query) => {
      expect(() => options(query)).toThrow(/replace|search/);
    },
  );
});

describe('live messages', () => {
  const message = {
    type: 'Results',
    is_final: true,
    channel: {
      alternatives: [
        {
          transcript: 'nine hundred dollars',
          confidence: 0.5,
          words: said('nine hundred dollars').map(({ punctuated: _, ...word }) => word),
        },
      ],
    },
  };

  it('are written as whole files are', () => {
    expect(withFormats(message, options('smart_format=true&search=hundred'))).toMatchObject({
      is_final: true,
      channel: {
        search: [{ query: 'hundred', hits: [{ start: 1, end: 1.5 }] }],
        alternatives: [{ transcript: '$900', words: [{ word: '$900', punctuated_word: '$900', start: 0, end: 2.5 }] }],
      },
    });
  });

  it('leave numbers as they are in another language, asked for or heard', () => {
    const [alternative] = message.channel.alternatives;
    const french = { ...message, channel: { alternatives: [{ ...alternative, languages: ['fr'] }] } };
    for (const [said, query] of [
      [french, 'smart_format=true'],
      [french, 'smart_format=true&language=multi'],
      [message, 'smart_format=true&language=fr'],
    ] as const)
      expect(withFormats(said, options(query))).toMatchObject({
        channel: { alternatives: [{ transcript: 'nine hundred dollars' }] },
      });
    const english = { ...message, channel: { alternatives: [{ ...alternative, languages: ['en'] }] } };
    expect(withFormats(english, options('smart_format=true&language=multi'))).toMatchObject({
      channel: { alternatives: [{ transcript: '$900' }] },
    });
  });

  it('come back as they are where nothing was asked or nothing said', () => {
    expect(withFormats(message, options(''))).toBe(message);
    const other = { type: 'SpeechStarted' };
    expect(withFormats(other, options('numerals=true'))).toBe(other);
  });
});
