/**
 * Sentiment by VADER (Hutto and Gilbert, 2014): per run of like-minded sentences, and the average by words.
 */
/// <reference path="./vader-sentiment.d.ts" />
import vader from 'vader-sentiment';
import { type Segment, type Sentence, segmentOf } from './document.ts';
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
function label(score: number): Sentiment {
  return score > 1 / 3 ? 'positive' : score < -1 / 3 ? 'negative' : 'neutral';
}

export function findSentiments(sentences: Sentence[]): Sentiments {
  const runs: { segment: Segment; sentiment: Sentiment; weighted: number; words: number }[] = [];
  let weighted = 0;
  let words = 0;
  for (const sentence of sentences) {
    const score = vader.SentimentIntensityAnalyzer.polarity_scores(sentence.text).compound;
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
