/** What the demo page says of an answer. */
import { expect, it } from 'vitest';
import {
  heard,
  linesOfRefusal,
  linesOfTranscript,
  linesOfUnderstanding,
} from '../../builtin-tenants/speech/demo/plain-words.ts';

it('tells summary, topics, intents and sentiment', () => {
  const results = {
    summary: { text: 'A lamp.' },
    topics: { segments: [{ topics: [{ topic: 'Lamps' }] }, { topics: [{ topic: 'Lamps' }, { topic: 'Money' }] }] },
    intents: { segments: [] },
    sentiments: { average: { sentiment: 'negative', sentiment_score: -0.5 } },
  };
  expect(linesOfUnderstanding({ results })).toEqual([
    ['Summary', 'A lamp.'],
    ['Topics', 'Lamps, Money'],
    ['Intents', 'none'],
    ['Sentiment', 'negative (-0.50)'],
  ]);
});

it('tells what a live stream heard, with its times, and whether it stays', () => {
  const results = (transcript: string, final: boolean) => ({
    type: 'Results',
    is_final: final,
    start: 61.25,
    duration: 1.5,
    channel: { alternatives: [{ transcript }] },
  });
  expect(heard(results('hello', false))).toEqual({ line: ['1:01.3 to 1:02.8', 'hello'], final: false });
  expect(heard(results('hello', true))?.final).toBe(true);
  for (const other of [results('', true), { type: 'Metadata' }, { type: 'Results' }, {}])
    expect(heard(other)).toBeUndefined();
});

it('tells every channel of a transcript, and silence', () => {
  const channel = (transcript: string) => ({ alternatives: [{ transcript }] });
  const heard = { metadata: { duration: 2.34 }, results: { channels: [channel('hello'), channel('there')] } };
  expect(linesOfTranscript(heard)).toEqual([
    ['Transcript', 'hello\nthere'],
    ['Length', '2.3 s'],
  ]);
  expect(linesOfTranscript({ results: { channels: [channel('')] } })).toEqual([['Transcript', 'nothing was heard']]);
});

it('tells when each part of a transcript was said', () => {
  const results = {
    channels: [{ alternatives: [{ transcript: 'hello there' }] }],
    utterances: [
      { start: 0.04, end: 1.25, transcript: 'hello' },
      { start: 61.5, end: 3_700.96, transcript: 'there' },
    ],
  };
  expect(linesOfTranscript({ results })).toEqual([
    ['Transcript', 'hello there'],
    ['0:00.0 to 0:01.3', 'hello'],
    ['1:01.5 to 61:41.0', 'there'],
  ]);
});

it('tells why something was refused', () => {
  expect(linesOfRefusal(400, '{"err_code":"X","err_msg":"No audio there."}')).toEqual([
    ['Refused (400)', 'No audio there.'],
  ]);
  expect(linesOfRefusal(503, '{"detail":"Try again."}')).toEqual([['Refused (503)', 'Try again.']]);
  expect(linesOfRefusal(502, '<html>')).toEqual([['Refused (502)', 'without a reason']]);
});
