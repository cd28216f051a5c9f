/**
 * How positive a sentence is: a regression over what it means (meaning.ts) and VADER's score (Hutto and Gilbert, 2014),
 * trained by test/speech/read/train-sentiment.ts; VADER alone where the meaning is not known.
 */
/// <reference path="./vader-sentiment.d.ts" />
import vader from 'vader-sentiment';
import trained from './feeling.json' with { type: 'json' };

/** For each class the weight of each feature, and at the end the bias: class `k` has the score Σ weight × feature + bias. */
export interface Feelings {
  negative: number[];
  positive: number[];
  neutral: number[];
}

/** @returns the numbers that a sentence is judged by */
export function featuresOf(text: string, meaning: number[]): number[] {
  const score = vaderScore(text);
  // Twice, because it says as much as several numbers of the meaning; its size, because a neutral sentence has none.
  return [...meaning, 2 * score, 2 * Math.abs(score)];
}

/** @returns -1 to 1: how much likelier it is positive than negative; near 0 also for what is neither */
export function positivity(text: string, meaning: number[] | undefined, feelings: Feelings = trained): number {
  if (!meaning) return vaderScore(text);
  const { negative, positive } = probabilities(featuresOf(text, meaning), feelings);
  return positive - negative;
}

/** Softmax. */
export function probabilities(features: number[], feelings: Feelings): Record<keyof Feelings, number> {
  const [negative, positive, neutral] = [feelings.negative, feelings.positive, feelings.neutral].map((weights) =>
    features.reduce((sum, feature, index) => sum + feature * (weights[index] ?? 0), weights.at(-1) ?? 0),
  ) as [number, number, number];
  const most = Math.max(negative, positive, neutral);
  const [a, b, c] = [Math.exp(negative - most), Math.exp(positive - most), Math.exp(neutral - most)];
  return { negative: a / (a + b + c), positive: b / (a + b + c), neutral: c / (a + b + c) };
}

function vaderScore(text: string): number {
  return vader.SentimentIntensityAnalyzer.polarity_scores(text).compound;
}
