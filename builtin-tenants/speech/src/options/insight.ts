/**
 * What to find out about a text: shared by /v1/read and by /v1/listen, which can do it to its transcript.
 */
import { invalid, type Query } from './query.ts';

export interface InsightOptions {
  summarize: boolean;
  topics: boolean;
  intents: boolean;
  sentiment: boolean;
  customTopics: string[];
  customTopicMode: 'extended' | 'strict';
  customIntents: string[];
  customIntentMode: 'extended' | 'strict';
}

const MODES = ['extended', 'strict'] as const;

/** @throws SpeechFailure */
export function readInsightOptions(query: Query): InsightOptions {
  const summarize = query.text('summarize');
  if (summarize !== undefined && !/^(true|false|v1|v2)$/.test(summarize)) {
    throw invalid('summarize', 'expected true, false or v2');
  }
  return {
    summarize: summarize !== undefined && summarize !== 'false',
    topics: query.flag('topics'),
    intents: query.flag('intents'),
    sentiment: query.flag('sentiment'),
    customTopics: names(query, 'custom_topic'),
    customTopicMode: query.choice('custom_topic_mode', MODES) ?? 'extended',
    customIntents: names(query, 'custom_intent'),
    customIntentMode: query.choice('custom_intent_mode', MODES) ?? 'extended',
  };
}

export function wantsInsight(options: InsightOptions): boolean {
  return options.summarize || options.topics || options.intents || options.sentiment;
}

function names(query: Query, name: string): string[] {
  const values = query.list(name);
  if (values.length > 100) throw invalid(name, 'at most 100');
  if (values.some((value) => value.length > 200)) throw invalid(name, 'at most 200 characters each');
  return values;
}
