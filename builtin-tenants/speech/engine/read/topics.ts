/**
 * Topics per sentence: the noun phrases that the text comes back to, and those that the caller asked to look for.
 */
import { findCustom } from './custom.ts';
import { type Phrase, type Segment, type Sentence, segmentOf } from './document.ts';
import { roundScore, titleCase } from './score.ts';

export interface TopicSegment extends Segment {
  topics: { topic: string; confidence_score: number }[];
}

const SHARE_OF_BEST = 0.35;
const PER_SENTENCE = 2;

/** @param mode `strict`: only the caller's own topics */
export function findTopics(sentences: Sentence[], custom: string[], mode: 'extended' | 'strict'): TopicSegment[] {
  const score = phraseScore(sentences);
  const best = Math.max(0, ...sentences.flatMap((sentence) => sentence.phrases.map(score)));
  return sentences
    .map((sentence) => {
      const asked = findCustom(sentence, custom).map(({ name, score }) => ({ topic: name, confidence_score: score }));
      return {
        ...segmentOf(sentence),
        topics: [...asked, ...(mode === 'strict' ? [] : ownTopics(sentence, score, best))],
      };
    })
    .filter((segment) => segment.topics.length > 0);
}

function ownTopics(sentence: Sentence, score: (phrase: Phrase) => number, best: number): TopicSegment['topics'] {
  const shares = new Map(sentence.phrases.map((phrase) => [phrase.key, score(phrase) / best]));
  return [...shares]
    .filter(([, share]) => share >= SHARE_OF_BEST)
    .sort(([, a], [, b]) => b - a)
    .slice(0, PER_SENTENCE)
    .map(([key, share]) => ({ topic: titleCase(key), confidence_score: roundScore(Math.min(0.99, share)) }));
}

/** Phrases that come again, heads that come again, and longer phrases count more; early ones a little. */
function phraseScore(sentences: Sentence[]): (phrase: Phrase) => number {
  const keys = new Map<string, number>();
  const heads = new Map<string, number>();
  for (const { key, head } of sentences.flatMap((sentence) => sentence.phrases)) {
    keys.set(key, (keys.get(key) ?? 0) + 1);
    heads.set(head, (heads.get(head) ?? 0) + 1);
  }
  return ({ key, head, words, at }) => {
    const repeated = ((keys.get(key) ?? 1) - 1) * 1.5 + (heads.get(head) ?? 1) - 1;
    return (repeated + 0.8 * words) * (0.9 + 0.1 / (1 + at / 5));
  };
}
