/** Answers of the service in words for people; the page shows the whole answer below. */

/** A term and what is to say about it. */
export type Line = [term: string, description: string];

interface Segment {
  topics?: { topic: string }[];
  intents?: { intent: string }[];
}

/** What `/v1/read` answers, as far as it is shown. */
export interface Understanding {
  results?: {
    summary?: { text?: string };
    topics?: { segments: Segment[] };
    intents?: { segments: Segment[] };
    sentiments?: { average?: { sentiment: string; sentiment_score: number } };
  };
}

/** What `/v1/listen` answers, as far as it is shown. */
export interface Transcript {
  metadata?: { duration?: number };
  results?: {
    channels: { alternatives: { transcript: string; confidence?: number }[] }[];
    utterances?: { start: number; end: number; transcript: string }[];
  };
}

export function linesOfUnderstanding({ results = {} }: Understanding): Line[] {
  const topics = (results.topics?.segments ?? []).flatMap((segment) => segment.topics ?? []).map(({ topic }) => topic);
  const intents = (results.intents?.segments ?? [])
    .flatMap((segment) => segment.intents ?? [])
    .map(({ intent }) => intent);
  const average = results.sentiments?.average;
  return [
    ['Summary', results.summary?.text ?? 'none'],
    ['Topics', listed(topics)],
    ['Intents', listed(intents)],
    ['Sentiment', average === undefined ? 'none' : `${average.sentiment} (${average.sentiment_score.toFixed(2)})`],
  ];
}

export function linesOfTranscript({ metadata, results }: Transcript): Line[] {
  const utterances = results?.utterances ?? [];
  const texts = (results?.channels ?? []).map(({ alternatives }) => alternatives[0]?.transcript ?? '');
  const seconds = metadata?.duration;
  return [
    ['Transcript', texts.join('\n').trim() || 'nothing was heard'],
    ...utterances.map(({ start, end, transcript }): Line => [`${timeOf(start)} to ${timeOf(end)}`, transcript]),
    ...(seconds === undefined ? [] : [['Length', `${seconds.toFixed(1)} s`] satisfies Line]),
  ];
}

/** What a live stream says, as far as it is shown. */
export interface LiveMessage {
  type?: string;
  is_final?: boolean;
  start?: number;
  duration?: number;
  channel?: { alternatives?: { transcript?: string }[] };
  charge?: { usd?: string; seconds?: number };
}

/** @returns what was heard, and whether it stays so; undefined for other messages and for silence */
export function heard({ type, is_final: final, start = 0, duration = 0, channel }: LiveMessage) {
  const transcript = channel?.alternatives?.[0]?.transcript ?? '';
  if (type !== 'Results' || transcript === '') return undefined;
  const line: Line = [`${timeOf(start)} to ${timeOf(start + duration)}`, transcript];
  return { line, final: final === true };
}

/** `83.4` -> `1:23.4` */
function timeOf(seconds: number): string {
  const rest = (seconds % 60).toFixed(1);
  return `${Math.floor(seconds / 60)}:${rest.padStart(4, '0')}`;
}

/** @param body the service's `{err_code, err_msg}`, a problem document of the host, or anything else */
export function linesOfRefusal(status: number, body: string): Line[] {
  try {
    const { err_msg: message, detail } = JSON.parse(body) as { err_msg?: string; detail?: string };
    return [[`Refused (${status})`, message ?? detail ?? 'without a reason']];
  } catch {
    return [[`Refused (${status})`, 'without a reason']];
  }
}

function listed(names: string[]): string {
  return [...new Set(names)].join(', ') || 'none';
}
