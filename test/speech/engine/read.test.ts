import { describe, expect, it } from 'vitest';
import read, { type ReadTask } from '../../../builtin-tenants/speech/engine/read/thread.ts';
import { expectTime } from '../../times.ts';

const REVIEW =
  'The new battery is wonderful and lasts for three days. The battery charges quickly and the charger is small. Sadly the screen is terrible and broke on the second day. I want to return the phone. Please send me a refund for the broken screen. The battery alone is not worth the price of the phone.';

function task(asked: Partial<ReadTask>): ReadTask {
  return {
    text: REVIEW,
    summarize: false,
    topics: false,
    intents: false,
    sentiment: false,
    customTopics: [],
    customTopicMode: 'extended',
    customIntents: [],
    customIntentMode: 'extended',
    ...asked,
  };
}

describe('words without an end', () => {
  it.each([
    ['an address', 'http://', 20_000],
    ['a line', '-', 100_000],
    ['marks', 'a!', 50_000],
  ])('%s keeps nobody waiting', (_what, piece, times) => {
    const started = performance.now();
    read(task({ text: piece.repeat(times), summarize: true, topics: true, intents: true, sentiment: true }));
    expectTime('reading', performance.now() - started, 3000);
  });

  it('come back as they are, and count as one', () => {
    const address = `http://example.com/${'x'.repeat(300)}`;
    const { sentiments } = read(task({ text: `Look at ${address} now, it is great.`, sentiment: true }));
    expect(sentiments?.segments).toEqual([
      expect.objectContaining({ text: `Look at ${address} now, it is great.`, start_word: 0, end_word: 6 }),
    ]);
  });
});

describe('reading a text', () => {
  it('summarizes with sentences of the text, in their order', () => {
    const { summary } = read(task({ summarize: true }));
    const sentences = REVIEW.split(/(?<=\.) /);
    const chosen = (summary?.text ?? '').split(/(?<=\.) /);
    expect(chosen.length).toBeGreaterThan(0);
    expect(chosen.length).toBeLessThan(sentences.length);
    const positions = chosen.map((sentence) => sentences.indexOf(sentence));
    expect(positions).not.toContain(-1);
    expect(positions).toEqual([...positions].sort((a, b) => a - b));
  });

  it.each([
    ['as it is written', REVIEW],
    ['with white space and signs', `\n  ${REVIEW.replaceAll('. ', '.\n\t ').replace('phone', 'phone 😀')}  \n`],
    ['with a long word', `See ${'x'.repeat(300)} now. ${REVIEW} Look at ${'y'.repeat(500)} there, it is terrible.`],
  ])('tells where in the text each result stands: %s', (_how, text) => {
    const everything = { summarize: true, topics: true, intents: true, sentiment: true };
    const { summary, topics, intents, sentiments } = read(task({ text, ...everything }));
    const segments = [
      ...(summary?.sources ?? []),
      ...(topics?.segments ?? []),
      ...(intents?.segments ?? []),
      ...(sentiments?.segments ?? []),
    ];
    const plain = (part: string) => part.replace(/\s+/g, '');
    expect(segments.length).toBeGreaterThan(8);
    for (const { text: said, start_offset: start, end_offset: end } of segments) {
      expect(plain(text.slice(start, end))).toBe(plain(said));
      expect(text.slice(start, end).trim()).toBe(text.slice(start, end));
    }
    expect(summary?.sources.map((source) => source.text).join(' ')).toBe(summary?.text);
    expect(summary?.confidence_score).toBeGreaterThan(0);
    expect(summary?.confidence_score).toBeLessThanOrEqual(1);
  });

  it('gives a short text as its own summary', () => {
    expect(read(task({ text: ' Only this. ', summarize: true })).summary?.text).toBe('Only this.');
  });

  it('finds what the text comes back to, by sentence', () => {
    const { topics } = read(task({ topics: true }));
    const found = topics?.segments.flatMap((segment) => segment.topics.map(({ topic }) => topic)) ?? [];
    expect(found).toContain('Battery');
    expect(topics?.segments[0]).toMatchObject({ start_word: 0, end_word: 9, text: expect.stringContaining('battery') });
    for (const { confidence_score: score } of topics?.segments.flatMap((segment) => segment.topics) ?? []) {
      expect(score).toBeGreaterThan(0);
      expect(score).toBeLessThanOrEqual(1);
    }
  });

  it('finds intents of the speaker', () => {
    const { intents } = read(task({ intents: true }));
    const found = intents?.segments.flatMap((segment) => segment.intents.map(({ intent }) => intent));
    expect(found).toContain('Return Phone');
  });

  it('finds custom topics and intents, and only those when strict', () => {
    const { topics, intents } = read(
      task({
        topics: true,
        intents: true,
        customTopics: ['broken screen'],
        customTopicMode: 'strict',
        customIntents: ['send a refund'],
        customIntentMode: 'strict',
      }),
    );
    expect(new Set(topics?.segments.flatMap((segment) => segment.topics.map(({ topic }) => topic)))).toEqual(
      new Set(['broken screen']),
    );
    expect(intents?.segments.map(({ intents }) => intents[0]?.intent)).toEqual(['send a refund']);
  });

  it('tells sentiment by run of sentences and on average', () => {
    const { sentiments, words } = read(task({ sentiment: true }));
    const labels = sentiments?.segments.map(({ sentiment }) => sentiment);
    expect(labels).toContain('positive');
    expect(labels).toContain('negative');
    for (const [at, label] of (labels ?? []).entries()) expect(label).not.toBe(labels?.[at + 1]);
    expect(sentiments?.segments.at(-1)?.end_word).toBe(words - 1);
    expect(read(task({ text: 'This is wonderful, I love it!', sentiment: true })).sentiments?.average.sentiment).toBe(
      'positive',
    );
    expect(read(task({ text: 'It is a table.', sentiment: true })).sentiments?.average.sentiment).toBe('neutral');
  });

  it.each(['', ' ', '\0', '...', '😀😀', 'ß'.repeat(5000), '<script>alert(1)</script>'])('survives %.20j', (text) => {
    const everything = { summarize: true, topics: true, intents: true, sentiment: true };
    expect(read(task({ text, ...everything })).words).toBeGreaterThanOrEqual(0);
  });
});
