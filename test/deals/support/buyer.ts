/** A buyer's program: recomputes a deal from the rules it bought and the deal's facts, with a CEL engine of its own. */
import { evaluate } from '@marcbachmann/cel-js';

/** What a buyer knows of the rules: the document itself. */
export interface BoughtRules {
  constants: Record<string, number>;
  gates: { id: string; expression: string }[];
  terms: { id: string; expression: string }[];
  confidence: { id: string; expression: string }[];
  tiers: { name: string; min: number }[];
}

export function recompute(rules: BoughtRules, facts: object) {
  const bindings: Record<string, bigint | boolean> = {};
  for (const [name, value] of Object.entries({ ...rules.constants, ...facts }))
    bindings[name] = typeof value === 'number' ? BigInt(value) : (value as boolean);
  const sum = (list: { expression: string }[]) => {
    const total = list.reduce((points, { expression }) => points + Number(evaluate(expression, bindings)), 0);
    return Math.max(0, Math.min(1_000, total));
  };
  const score = sum(rules.terms);
  return {
    gates_failed: rules.gates.filter(({ expression }) => evaluate(expression, bindings) !== true).map(({ id }) => id),
    score,
    confidence: sum(rules.confidence),
    tier: rules.tiers.find(({ min }) => score >= min)?.name,
  };
}
