/** What a chat model answers about a text: taken only where all of it is as asked. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ChatEngine } from '../../../builtin-tenants/speech/src/engines/chat.ts';

const TEXT = '  Please cancel my order.\n I want a refund! ';
const GOOD = {
  summary: { text: 'Two wishes.', sentences: [1, 0, 1], confidence: 0.7 },
  topics: [{ sentence: 1, topic: 'Refund', confidence: 0.8 }],
  intents: [],
  sentiments: [
    { sentence: 1, score: 0.2 },
    { sentence: 0, score: -0.6 },
  ],
};

let server: Server;
let answer: unknown;

beforeAll(async () => {
  server = createServer((_request, reply) => {
    const content = typeof answer === 'string' ? answer : JSON.stringify(answer);
    reply.setHeader('content-type', 'application/json');
    reply.end(JSON.stringify({ choices: [{ message: { content } }] }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterAll(() => server.close());

async function read(given: unknown) {
  answer = given;
  const { port } = server.address() as AddressInfo;
  const engine = new ChatEngine({
    baseUrl: `http://127.0.0.1:${port}`,
    apiKey: '',
    transcribeModel: '',
    speechModel: '',
    voice: '',
    chatModel: 'chat',
  });
  const options = {
    summarize: true,
    topics: true,
    intents: true,
    sentiment: true,
    customTopics: ['Refund'],
    customTopicMode: 'strict' as const,
    customIntents: [],
    customIntentMode: 'extended' as const,
  };
  return await engine.read({ text: TEXT, language: 'en', options, signal: AbortSignal.timeout(10_000) });
}

it('has a score, and the place in the text, of each result', async () => {
  const first = { text: 'Please cancel my order.', start_word: 0, end_word: 3, start_offset: 2, end_offset: 25 };
  const second = { text: 'I want a refund!', start_word: 4, end_word: 7, start_offset: 27, end_offset: 43 };
  expect(await read(GOOD)).toMatchObject({
    summary: { text: 'Two wishes.', confidence_score: 0.7, sources: [first, second] },
    topics: { segments: [{ ...second, topics: [{ topic: 'Refund', confidence_score: 0.8 }] }] },
    intents: { segments: [] },
    sentiments: {
      segments: [
        { ...first, sentiment: 'negative', sentiment_score: -0.6 },
        { ...second, sentiment: 'neutral', sentiment_score: 0.2 },
      ],
      average: { sentiment: 'neutral', sentiment_score: -0.2 },
    },
  });
});

it.each([
  ['no JSON', 'I cannot do that.'],
  ['nothing', {}],
  ['no topics', { ...GOOD, topics: undefined }],
  ['a summary without its sentences', { ...GOOD, summary: 'Two wishes.' }],
  ['an empty summary', { ...GOOD, summary: { ...GOOD.summary, text: ' ' } }],
  ['a summary of other sentences', { ...GOOD, summary: { ...GOOD.summary, sentences: [2] } }],
  ['a topic of another sentence', { ...GOOD, topics: [{ sentence: 9, topic: 'Refund', confidence: 1 }] }],
  ['a topic that strict mode excludes', { ...GOOD, topics: [{ sentence: 1, topic: 'Order', confidence: 1 }] }],
  ['a score out of range', { ...GOOD, topics: [{ sentence: 1, topic: 'Refund', confidence: 1.2 }] }],
  ['a sentence without sentiment', { ...GOOD, sentiments: GOOD.sentiments.slice(1) }],
  ['a sentence with two sentiments', { ...GOOD, sentiments: [...GOOD.sentiments, { sentence: 0, score: 1 }] }],
])('%s is an error of the model', async (_what, given) => {
  await expect(read(given)).rejects.toMatchObject({ code: 'UPSTREAM_ERROR' });
});
