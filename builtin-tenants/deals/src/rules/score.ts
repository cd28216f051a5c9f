/** Applies a rule set to facts. Expressions are compiled once. */
import { celEnv, parse, plan } from '@bufbuild/cel';
import type { Facts, RuleSet } from './ruleset.ts';

export interface Verdict {
  score: number;
  confidence: number;
  tier: string;
  gates_failed: string[];
  /** Terms that added to the score, with their points. */
  reasons: { id: string; points: number }[];
}

type Evaluate = (bindings: Record<string, bigint | boolean>) => unknown;

export class Scorer {
  readonly rules: RuleSet;
  readonly #gates: [id: string, evaluate: Evaluate][];
  readonly #terms: [id: string, evaluate: Evaluate][];
  readonly #confidence: [id: string, evaluate: Evaluate][];
  readonly #constants: Record<string, bigint>;

  constructor(rules: RuleSet) {
    this.rules = rules;
    const environment = celEnv();
    const compile = ({ id, expression }: { id: string; expression: string }): [string, Evaluate] => [
      id,
      plan(environment, parse(expression)) as unknown as Evaluate,
    ];
    this.#gates = rules.gates.map(compile);
    this.#terms = rules.terms.map(compile);
    this.#confidence = rules.confidence.map(compile);
    this.#constants = Object.fromEntries(Object.entries(rules.constants).map(([name, value]) => [name, BigInt(value)]));
  }

  judge(facts: Facts): Verdict {
    const bindings: Record<string, bigint | boolean> = { ...this.#constants };
    for (const [name, value] of Object.entries(facts))
      bindings[name] = typeof value === 'number' ? BigInt(value) : value;
    const points = (list: [string, Evaluate][]) =>
      list.map(([id, evaluate]) => ({ id, points: Number(evaluate(bindings)) }));
    const terms = points(this.#terms);
    const score = clamp(terms);
    return {
      score,
      confidence: clamp(points(this.#confidence)),
      tier: this.rules.tiers.find(({ min }) => score >= min)?.name ?? '',
      gates_failed: this.#gates.filter(([, evaluate]) => evaluate(bindings) !== true).map(([id]) => id),
      reasons: terms.filter((term) => term.points > 0),
    };
  }
}

function clamp(points: { points: number }[]): number {
  return Math.max(
    0,
    Math.min(
      1_000,
      points.reduce((sum, term) => sum + term.points, 0),
    ),
  );
}
