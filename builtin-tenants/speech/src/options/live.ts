/**
 * Options of a live stream, by Deepgram's names (https://developers.deepgram.com/reference/speech-to-text/listen-streaming).
 */
import { type ListenOptions, readListenOptions } from './listen.ts';
import { invalid, Query } from './query.ts';

export interface LiveOptions {
  listen: ListenOptions;
  channels: number;
  interim: boolean;
  vadEvents: boolean;
  /** ms; 0: no silence ends an utterance. */
  endpointingMs: number;
  /** ms. */
  utteranceEndMs: number | undefined;
  warnings: string[];
}

/** A shorter silence is within a word. */
const SHORTEST_ENDPOINT_MS = 300;
const OWN = ['interim_results', 'vad_events', 'endpointing', 'utterance_end_ms', 'no_delay', 'channels'];
/** What is made of a whole file only. */
const WHOLE = [
  'utterances',
  'paragraphs',
  'summarize',
  'topics',
  'intents',
  'sentiment',
  'callback',
  'detect_language',
];

/** @throws SpeechFailure INVALID_QUERY_PARAMETER */
export function readLiveOptions(parameters: URLSearchParams): LiveOptions {
  const query = new Query(parameters);
  const asked = query.text('endpointing');
  const endpointing = asked === 'true' || asked === undefined ? 10 : asked === 'false' ? 0 : Number(asked);
  if (!Number.isInteger(endpointing) || endpointing < 0 || endpointing > 60_000)
    throw invalid('endpointing', 'expected false or a whole number of milliseconds up to 60000');
  const interim = query.flag('interim_results');
  const utteranceEndMs = query.number('utterance_end_ms', { min: 1000, max: 60_000, whole: true });
  const rest = new URLSearchParams([...parameters].filter(([name]) => !WHOLE.includes(name)));
  const listen = readListenOptions(rest);
  const short = asked !== undefined && endpointing > 0 && endpointing < SHORTEST_ENDPOINT_MS;
  return {
    listen: { ...listen, unknown: listen.unknown.filter((name) => !OWN.includes(name)) },
    channels: listen.raw?.channels ?? query.number('channels', { min: 1, max: 8, whole: true }) ?? 1,
    interim,
    vadEvents: query.flag('vad_events'),
    endpointingMs: endpointing === 0 ? 0 : Math.max(SHORTEST_ENDPOINT_MS, endpointing),
    utteranceEndMs,
    warnings: [
      ...WHOLE.filter((name) => query.asked(name)).map((name) => `${name}: not offered for live streams`),
      ...(short ? [`endpointing=${endpointing}: ${SHORTEST_ENDPOINT_MS} ms is the shortest`] : []),
    ],
  };
}
