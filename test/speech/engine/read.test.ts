import { once } from 'node:events';
import { constants, getPriority } from 'node:os';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { positivity } from '../../../builtin-tenants/speech/engine/read/feeling.ts';
import { meaningsOf } from '../../../builtin-tenants/speech/engine/read/meaning.ts';
import { label } from '../../../builtin-tenants/speech/engine/read/sentiments.ts';
import read, { type ReadTask } from '../../../builtin-tenants/speech/engine/read/thread.ts';
import { expectTime } from '../../times.ts';
import { reviews } from '../read/sentences.ts';

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

it('yields to others in its own thread, and lowers no program that loads it', async () => {
  const thread = new URL('../../../builtin-tenants/speech/engine/read/thread.ts', import.meta.url);
  const asks = `import(workerData).then(() => parentPort.postMessage(require('node:os').getPriority(0)))`;
  const worker = new Worker(`const { parentPort, workerData } = require('node:worker_threads'); ${asks}`, {
    eval: true,
    workerData: thread.href,
  });
  expect(await once(worker, 'message')).toEqual([constants.priority.PRIORITY_BELOW_NORMAL]);
  expect(getPriority()).toBe(getPriority(process.ppid));
});

describe('words without an end', () => {
  it.each([
    ['an address', 'http://', 20_000],
    ['a line', '-', 100_000],
    ['marks', 'a!', 50_000],
    ['sentences', 'A! ', 5_000],
  ])('%s keeps nobody waiting', async (_what, piece, times) => {
    const started = performance.now();
    await read(task({ text: piece.repeat(times), summarize: true, topics: true, intents: true, sentiment: true }));
    expectTime('reading', performance.now() - started, 3000);
  });

  it('come back as they are, and count as one', async () => {
    const address = `http://example.com/${'x'.repeat(300)}`;
    const { sentiments } = await read(task({ text: `Look at ${address} now, it is great.`, sentiment: true }));
    expect(sentiments?.segments).toEqual([
      expect.objectContaining({ text: `Look at ${address} now, it is great.`, start_word: 0, end_word: 6 }),
    ]);
  });
});

describe('reading a text', () => {
  it('summarizes with sentences of the text, in their order', async () => {
    const { summary } = await read(task({ summarize: true }));
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
  ])('tells where in the text each result stands: %s', async (_how, text) => {
    const everything = { summarize: true, topics: true, intents: true, sentiment: true };
    const { summary, topics, intents, sentiments } = await read(task({ text, ...everything }));
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

  it('gives a short text as its own summary', async () => {
    expect((await read(task({ text: ' Only this. ', summarize: true }))).summary?.text).toBe('Only this.');
  });

  it('finds what the text comes back to, by sentence', async () => {
    const { topics } = await read(task({ topics: true }));
    const found = topics?.segments.flatMap((segment) => segment.topics.map(({ topic }) => topic)) ?? [];
    expect(found).toContain('Battery');
    expect(topics?.segments[0]).toMatchObject({ start_word: 0, end_word: 9, text: expect.stringContaining('battery') });
    for (const { confidence_score: score } of topics?.segments.flatMap((segment) => segment.topics) ?? []) {
      expect(score).toBeGreaterThan(0);
      expect(score).toBeLessThanOrEqual(1);
    }
  });

  it('finds intents of the speaker', async () => {
    const { intents } = await read(task({ intents: true }));
    const found = intents?.segments.flatMap((segment) => segment.intents.map(({ intent }) => intent));
    expect(found).toContain('Return Phone');
  });

  it('finds custom topics and intents, and only those when strict', async () => {
    const { topics, intents } = await read(
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

  it('tells sentiment by run of sentences and on average', async () => {
    const { sentiments, words } = await read(task({ sentiment: true }));
    const labels = sentiments?.segments.map(({ sentiment }) => sentiment);
    expect(labels).toContain('positive');
    expect(labels).toContain('negative');
    for (const [at, label] of (labels ?? []).entries()) expect(label).not.toBe(labels?.[at + 1]);
    expect(sentiments?.segments.at(-1)?.end_word).toBe(words - 1);
    expect(
      (await read(task({ text: 'This is wonderful, I love it!', sentiment: true }))).sentiments?.average.sentiment,
    ).toBe('positive');
    expect((await read(task({ text: 'It is a table.', sentiment: true }))).sentiments?.average.sentiment).toBe(
      'neutral',
    );
  });

  it.each(['', ' ', '\0', '...', '😀😀', 'ß'.repeat(5000), '<script>alert(1)</script>'])(
    'survives %.20j',
    async (text) => {
      const everything = { summarize: true, topics: true, intents: true, sentiment: true };
      expect((await read(task({ text, ...everything }))).words).toBeGreaterThanOrEqual(0);
    },
  );
});

describe('sentiment', () => {
  /** Of films; it is trained on goods and restaurants. */
  const unseen = reviews('imdb').filter((_, index) => index % 20 === 0);

  it('is looked for in so many sentences only, however short they are', async () => {
    const meanings = await meaningsOf(Array.from({ length: 2_000 }, () => ({ text: 'A!' })));
    expect(meanings.filter(Boolean)).toHaveLength(250);
  });

  it('is told better than by words alone, in sentences of another kind than it was trained on', async () => {
    const meanings = await meaningsOf(unseen);
    const right = (scores: number[]) =>
      scores.filter((score, index) => label(score) === unseen[index]?.sentiment).length / unseen.length;
    const byWords = right(unseen.map(({ text }) => positivity(text, undefined)));
    const byMeaning = right(unseen.map(({ text }, index) => positivity(text, meanings[index])));
    expect(meanings).not.toContain(undefined);
    expect(byMeaning).toBeGreaterThan(byWords + 0.05);
  });

  it.each([
    'The meeting starts at nine in the morning.',
    'My brother lives in a town near the river.',
    'She bought two tickets for the train to Vienna.',
    'A letter came from the bank, and I put it on the shelf.',
    'I would like to know when the office opens.',
  ])('is neutral: %s', async (text) => {
    const { sentiments } = await read(task({ text, sentiment: true }));
    expect(sentiments?.average.sentiment).toBe('neutral');
  });

  it.each([
    ['The battery died after two days and nobody answers my calls.', 'negative'],
    ['They never picked up the phone and I waited for three hours.', 'negative'],
    ['Thanks, that solved it.', 'positive'],
  ])('%s is %s, by what it means', async (text, sentiment) => {
    const { sentiments } = await read(task({ text, sentiment: true }));
    expect(sentiments?.average.sentiment).toBe(sentiment);
  });

  it('of a long text is told to its end, in bounded time', async () => {
    const text = 'The screen of this telephone broke again, and it is terrible. '.repeat(400);
    const { sentiments } = await read(task({ text, sentiment: true }));
    expect(sentiments?.segments.at(-1)?.end_offset).toBe(text.trim().length);
    expect(sentiments?.average.sentiment).toBe('negative');
  });
});
