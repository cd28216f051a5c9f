/**
 * A worker thread that reads text: the language model stays loaded, one text at a time.
 */
import { constants, setPriority } from 'node:os';
import { isMainThread } from 'node:worker_threads';
import { readDocument } from './document.ts';
import { findIntents, type IntentSegment } from './intents.ts';
import { findSentiments, type Sentiments } from './sentiments.ts';
import { type Summary, summarize } from './summary.ts';
import { findTopics, type TopicSegment } from './topics.ts';

export interface ReadTask {
  text: string;
  summarize: boolean;
  topics: boolean;
  intents: boolean;
  sentiment: boolean;
  customTopics: string[];
  customTopicMode: 'extended' | 'strict';
  customIntents: string[];
  customIntentMode: 'extended' | 'strict';
}

/** In Deepgram's flat shape. */
export interface ReadAnswer {
  summary?: Summary;
  topics?: { segments: TopicSegment[] };
  intents?: { segments: IntentSegment[] };
  sentiments?: Sentiments;
  /** Words of the text, which Deepgram reports as tokens. */
  words: number;
}

// on Linux 0 is the calling thread: the event loop of the engine keeps its own priority, and so does that of a test
if (!isMainThread) setPriority(0, constants.priority.PRIORITY_BELOW_NORMAL);

export default async function read(task: ReadTask): Promise<ReadAnswer> {
  const sentences = readDocument(task.text);
  return {
    words: (sentences.at(-1)?.endWord ?? -1) + 1,
    ...(task.summarize ? { summary: summarize(task.text, sentences) } : {}),
    ...(task.topics ? { topics: { segments: findTopics(sentences, task.customTopics, task.customTopicMode) } } : {}),
    ...(task.intents
      ? { intents: { segments: findIntents(sentences, task.customIntents, task.customIntentMode) } }
      : {}),
    ...(task.sentiment ? { sentiments: await findSentiments(sentences) } : {}),
  };
}
