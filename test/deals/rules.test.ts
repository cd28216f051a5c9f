/** The rules that are sold: their own vectors hold, in this engine and in another one. */
import { describe, expect, test } from 'vitest';
import { publishRules, readRules } from '../../builtin-tenants/deals/src/rules/published-rules.ts';
import { type Facts, RULES } from '../../builtin-tenants/deals/src/rules/ruleset.ts';
import { Scorer } from '../../builtin-tenants/deals/src/rules/score.ts';
import { recompute } from './support/buyer.ts';
import { memoryDatabase } from './support/memory-database.ts';
import { FACTS } from './support/parts.ts';

const scorer = new Scorer(RULES);

describe.each(RULES.vectors.map((vector, index) => [index, vector] as const))('test vector %i', (_index, vector) => {
  const { facts, ...expected } = vector;
  test('holds in the engine of the service', () => {
    expect(scorer.judge(facts)).toMatchObject(expected);
  });
  test('holds in another engine', () => {
    expect(recompute(JSON.parse(JSON.stringify(RULES)), facts)).toEqual(expected);
  });
});

test('two engines agree on a thousand arbitrary facts', () => {
  let state = 7;
  const next = (below: number) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
  for (let round = 0; round < 1_000; round++) {
    const facts: Facts = {
      discount_bps: next(10_001),
      claimed_discount_bps: next(10_001),
      reference_known: next(2) === 1,
      days_observed: next(31),
      confirmations: next(6),
      stale_hours: next(60),
      age_hours: next(100),
      at_low: next(2) === 1,
      in_stock: next(2) === 1,
    };
    const { reasons: _, ...verdict } = scorer.judge(facts);
    expect(verdict).toEqual(recompute(RULES, facts));
  }
});

test('the reasons are the terms that added, and sum up to the score', () => {
  const { reasons, score } = scorer.judge(FACTS);
  expect(reasons.reduce((sum, { points }) => sum + points, 0)).toBe(score);
  expect(reasons.map(({ id }) => id)).toEqual(['depth', 'low', 'new', 'honest']);
});

test('a shop that claims much more than happened loses the points for honesty, and gains nothing', () => {
  const honest = scorer.judge({ ...FACTS, claimed_discount_bps: 2_500 }).score;
  expect(scorer.judge({ ...FACTS, claimed_discount_bps: 7_000 }).score).toBe(honest - 100);
});

test('every input that an expression names is described, and every constant is used', () => {
  const text = [...RULES.gates, ...RULES.terms, ...RULES.confidence].map(({ expression }) => expression).join(' ');
  const names = new Set(text.match(/[a-z_]+/g));
  const known = [...Object.keys(RULES.inputs), ...Object.keys(RULES.constants)];
  expect([...names].filter((name) => !known.includes(name))).toEqual([]);
  expect(known.filter((name) => !names.has(name))).toEqual([]);
});

test('published rules keep their text: another one under the same version is refused, older ones stay readable', async () => {
  const db = memoryDatabase();
  db.sql(
    'CREATE TABLE rulesets (version INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, body TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT',
  );
  const first = await publishRules(db, 1);
  expect(await publishRules(db, 2)).toEqual(first);
  await expect(publishRules(db, 3, { ...RULES, about: 'other' })).rejects.toThrow('new version');
  await publishRules(db, 4, { ...RULES, version: 2, about: 'other' });
  expect(await readRules(db, 1)).toEqual(first);
  db.close();
});
