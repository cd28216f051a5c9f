/**
 * Options of /v1/read, by Deepgram's names (https://developers.deepgram.com/reference/text-intelligence/analyze-text).
 */
import { type Callback, readCallback } from './callback.ts';
import { type InsightOptions, readInsightOptions, wantsInsight } from './insight.ts';
import { invalid, Query } from './query.ts';

export interface ReadOptions {
  language: string | undefined;
  insight: InsightOptions;
  callback: Callback | undefined;
  tags: string[];
  unknown: string[];
}

/** @throws SpeechFailure INVALID_QUERY_PARAMETER */
export function readReadOptions(parameters: URLSearchParams): ReadOptions {
  const query = new Query(parameters);
  const insight = readInsightOptions(query);
  if (!wantsInsight(insight)) {
    throw invalid('summarize, topics, intents, sentiment', 'at least one of them must be true');
  }
  const options = { language: query.text('language'), insight, callback: readCallback(query), tags: query.list('tag') };
  return { ...options, unknown: query.unread() };
}
