/**
 * `node test/speech/read/train-sentiment.ts`: trains how the reader judges a sentence (engine/read/feeling.ts), and writes
 * engine/read/feeling.json. Trained on reviews of goods and of restaurants, and on neutral prose; reviews of films are
 * kept for the test.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { type Feelings, featuresOf, probabilities } from '../../../builtin-tenants/speech/engine/read/feeling.ts';
import { meaningsOf } from '../../../builtin-tenants/speech/engine/read/meaning.ts';
import { everyday, type Known, ownComments, reviews } from './sentences.ts';

const CLASSES = ['negative', 'positive', 'neutral'] as const;
const ROUNDS = 400;
const RATE = 0.5;
const MOMENTUM = 0.9;
/** Holds weights small, so that no single number decides. */
const DECAY = 2e-3;
const FILE = path.resolve(import.meta.dirname, '../../../builtin-tenants/speech/engine/read/feeling.json');

/** About as many of each kind, from all parts of the project. */
const EACH = 5;
const known = [
  ...reviews('amazon'),
  ...reviews('yelp'),
  ...ownComments().filter((_, index) => index % EACH === 0),
  ...everyday(),
];
const counted = CLASSES.map((kind) => `${known.filter(({ sentiment }) => sentiment === kind).length} ${kind}`);
console.log(`training on ${counted.join(', ')} sentences`);
writeFileSync(FILE, `${JSON.stringify(train(await examplesOf(known)))}\n`);

async function examplesOf(sentences: Known[]): Promise<{ features: number[]; kind: string }[]> {
  const examples: { features: number[]; kind: string }[] = [];
  // One by one: a text of all of them would be longer than what is read.
  for (const sentence of sentences) {
    const [meaning] = await meaningsOf([sentence]);
    if (!meaning) throw new Error('the model is not installed: npm install');
    examples.push({ features: featuresOf(sentence.text, meaning), kind: sentence.sentiment });
  }
  return examples;
}

/** Gradient descent with momentum. */
function train(examples: { features: number[]; kind: string }[]): Feelings {
  const size = (examples[0]?.features.length ?? 0) + 1;
  const zeros = (): Feelings => ({
    negative: Array(size).fill(0),
    positive: Array(size).fill(0),
    neutral: Array(size).fill(0),
  });
  const [weights, speed] = [zeros(), zeros()];
  for (let round = 0; round < ROUNDS; round++) {
    const slope = zeros();
    for (const { features, kind } of examples) {
      const guess = probabilities(features, weights);
      for (const name of CLASSES) {
        const error = (guess[name] - (name === kind ? 1 : 0)) / examples.length;
        for (let index = 0; index < size; index++) add(slope[name], index, error * (features[index] ?? 1));
      }
    }
    for (const name of CLASSES) {
      for (let index = 0; index < size; index++) {
        const decay = index < size - 1 ? DECAY * (weights[name][index] ?? 0) : 0;
        speed[name][index] = MOMENTUM * (speed[name][index] ?? 0) + (slope[name][index] ?? 0) + decay;
        add(weights[name], index, -RATE * (speed[name][index] ?? 0));
      }
    }
  }
  const rounded = (values: number[]) => values.map((value) => Number(value.toFixed(3)));
  return {
    negative: rounded(weights.negative),
    positive: rounded(weights.positive),
    neutral: rounded(weights.neutral),
  };
}

function add(values: number[], index: number, by: number): void {
  values[index] = (values[index] ?? 0) + by;
}
