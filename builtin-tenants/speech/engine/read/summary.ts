/**
 * A summary of the most central sentences, by TextRank (Mihalcea and Tarau, 2004), in the order of the text. Its random
 * walk starts again at early sentences more often: texts say first what they are about.
 */
import { type Segment, type Sentence, segmentOf } from './document.ts';
import { roundScore } from './score.ts';

export interface Summary {
  text: string;
  /** Share of the text's weight that its sentences have, 0 to 1. */
  confidence_score: number;
  /** The sentences that it is made of, in the order of the text. */
  sources: Segment[];
}

/** Shorter texts are their own summary, as with Deepgram. */
const SHORTEST_WORDS = 50;
const MOST_SENTENCES = 300;
const DAMPING = 0.85;
const ROUNDS = 25;

export function summarize(text: string, sentences: Sentence[]): Summary {
  const words = sentences.reduce((sum, sentence) => sum + sentence.wordCount, 0);
  if (words < SHORTEST_WORDS) return { text: text.trim(), confidence_score: 1, sources: sentences.map(segmentOf) };
  const statements = sentences.filter((sentence) => sentence.wordCount >= 6 && !sentence.text.endsWith('?'));
  const candidates = (statements.length < 2 ? sentences : statements).slice(0, MOST_SENTENCES);
  const ranks = rank(similarities(candidates));
  const count = Math.min(3, Math.ceil(candidates.length / 4));
  const chosen = candidates
    .map((sentence, index) => ({ sentence, index, rank: ranks[index] ?? 0 }))
    .sort((a, b) => b.rank - a.rank)
    .slice(0, count)
    .sort((a, b) => a.index - b.index);
  const whole = ranks.reduce((sum, rank) => sum + rank, 0) || 1;
  return {
    text: chosen.map(({ sentence }) => sentence.text).join(' '),
    confidence_score: roundScore(Math.min(1, chosen.reduce((sum, { rank }) => sum + rank, 0) / whole)),
    sources: chosen.map(({ sentence }) => segmentOf(sentence)),
  };
}

function similarities(sentences: Sentence[]): Float64Array[] {
  const size = sentences.length;
  const weights = Array.from({ length: size }, () => new Float64Array(size));
  sentences.forEach((one, i) => {
    for (let j = i + 1; j < size; j++) {
      const other = sentences[j];
      if (other === undefined) continue;
      let shared = 0;
      for (const lemma of one.content) if (other.content.has(lemma)) shared++;
      const weight = shared / (Math.log(one.content.size + 1) + Math.log(other.content.size + 1) + 1e-9);
      set(weights, i, j, weight);
      set(weights, j, i, weight);
    }
  });
  return weights;
}

function set(matrix: Float64Array[], row: number, column: number, value: number): void {
  const cells = matrix[row];
  if (cells !== undefined) cells[column] = value;
}

function rank(weights: Float64Array[]): Float64Array {
  const size = weights.length;
  const outgoing = weights.map((row) => row.reduce((sum, weight) => sum + weight, 0));
  const first = new Float64Array(size).map((_, index) => 1 / (index + 1));
  const whole = first.reduce((sum, weight) => sum + weight, 0);
  const start = first.map((weight) => weight / whole);
  let ranks = start;
  for (let round = 0; round < ROUNDS; round++) {
    const next = start.map((share) => (1 - DAMPING) * share);
    weights.forEach((row, from) => {
      const share = (DAMPING * (ranks[from] ?? 0)) / (outgoing[from] || 1);
      row.forEach((weight, to) => {
        next[to] = (next[to] ?? 0) + share * weight;
      });
    });
    ranks = next;
  }
  return ranks;
}
