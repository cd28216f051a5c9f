/**
 * Sentiment: per run of like-minded sentences, and the average by words.
 */
import { type Segment, type Sentence, segmentOf } from './document.ts';
import { positivity } from './feeling.ts';
import { meaningsOf } from './meaning.ts';
import { roundScore } from './score.ts';

export type Sentiment = 'positive' | 'neutral' | 'negative';

export interface SentimentSegment extends Segment {
  sentiment: Sentiment;
  sentiment_score: number;
}

export interface Sentiments {
  segments: SentimentSegment[];
  average: { sentiment: Sentiment; sentiment_score: number };
}

/** Deepgram's thresholds on a score from -1 to 1. */
export function label(score: number): Sentiment {
  return score > 1 / 3 ? 'positive' : score < -1 / 3 ? 'negative' : 'neutral';
}

export async function findSentiments(sentences: Sentence[]): Promise<Sentiments> {
  const meanings = await meaningsOf(sentences);
  const runs: { segment: Segment; sentiment: Sentiment; weighted: number; words: number }[] = [];
  let weighted = 0;
  let words = 0;
  for (const [index, sentence] of sentences.entries()) {
    const score = positivity(sentence.text, meanings[index]);
    const share = score * sentence.wordCount;
    weighted += share;
    words += sentence.wordCount;
    const run = runs.at(-1);
    if (run !== undefined && run.sentiment === label(score)) {
      run.segment.text += ` ${sentence.text}`;
      run.segment.end_word = sentence.endWord;
      run.segment.end_offset = sentence.end;
      run.weighted += share;
      run.words += sentence.wordCount;
    } else {
      runs.push({ segment: segmentOf(sentence), sentiment: label(score), weighted: share, words: sentence.wordCount });
    }
  }
  const mean = weighted / (words || 1);
  return {
    segments: runs.map((run) => ({
      ...run.segment,
      sentiment: run.sentiment,
      sentiment_score: roundScore(run.weighted / run.words),
    })),
    average: { sentiment: label(mean), sentiment_score: roundScore(mean) },
  };
}
