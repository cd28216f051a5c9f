/**
 * The scoring rules that are sold at GET /v1/rules: one versioned document in CEL with integers only, so that a buyer
 * recomputes every score from a deal's facts with any CEL engine. Change nothing in a published version; add one.
 */

/** What the expressions see; every fact is an integer or a boolean. */
export interface Facts {
  /** Price against the reference, 1/100 %; 0 without a reference. */
  discount_bps: number;
  /** Price against the shop's own list price, 1/100 %. */
  claimed_discount_bps: number;
  reference_known: boolean;
  /** Days observed in the 30 days before the drop. */
  days_observed: number;
  /** Successful observations at the present price. */
  confirmations: number;
  /** Hours since the last successful observation. */
  stale_hours: number;
  /** Hours since the drop. */
  age_hours: number;
  at_low: boolean;
  in_stock: boolean;
}

export interface RuleSet {
  version: number;
  language: 'cel';
  about: string;
  inputs: Record<keyof Facts, { type: 'int' | 'bool'; about: string }>;
  constants: Record<string, number>;
  /** All must hold, or there is no deal. */
  gates: { id: string; expression: string; reason: string }[];
  /** The score is their sum, cut to 0..1000. */
  terms: { id: string; expression: string }[];
  /** The confidence is their sum, cut to 0..1000. */
  confidence: { id: string; expression: string }[];
  /** The first whose `min` the score reaches. */
  tiers: { name: string; min: number }[];
  vectors: { facts: Facts; gates_failed: string[]; score: number; confidence: number; tier: string }[];
}

export const RULES: RuleSet = {
  version: 1,
  language: 'cel',
  about:
    'Bind every input and constant by its name (ints as 64-bit integers). A deal exists while all gates are true. ' +
    'score = clamp(sum(terms), 0, 1000); confidence = clamp(sum(confidence), 0, 1000). Division truncates.',
  inputs: {
    discount_bps: { type: 'int', about: 'below the lowest price of the 30 days before the drop, 1/100 %' },
    claimed_discount_bps: { type: 'int', about: "below the shop's own list price, 1/100 %" },
    reference_known: { type: 'bool', about: 'at least 14 days were observed before the drop' },
    days_observed: { type: 'int', about: 'days observed in the 30 days before the drop' },
    confirmations: { type: 'int', about: 'successful observations at the present price' },
    stale_hours: { type: 'int', about: 'hours since the last successful observation' },
    age_hours: { type: 'int', about: 'hours since the drop' },
    at_low: { type: 'bool', about: 'nothing cheaper was ever observed' },
    in_stock: { type: 'bool', about: 'the shop says that it can be had' },
  },
  constants: { min_discount_bps: 500, full_discount_bps: 5_000, fresh_hours: 72, longest_stale_hours: 48 },
  gates: [
    { id: 'reference', expression: 'reference_known', reason: 'fewer than 14 days observed before the drop' },
    { id: 'discount', expression: 'discount_bps >= min_discount_bps', reason: 'less than 5 % below the reference' },
    { id: 'stock', expression: 'in_stock', reason: 'not in stock' },
    { id: 'fresh', expression: 'stale_hours <= longest_stale_hours', reason: 'not verified for two days' },
  ],
  terms: [
    {
      id: 'depth',
      expression: 'discount_bps >= full_discount_bps ? 600 : discount_bps * 600 / full_discount_bps',
    },
    { id: 'low', expression: 'at_low ? 200 : 0' },
    { id: 'new', expression: 'age_hours >= fresh_hours ? 0 : (fresh_hours - age_hours) * 100 / fresh_hours' },
    { id: 'honest', expression: 'claimed_discount_bps > discount_bps * 2 ? 0 : 100' },
  ],
  confidence: [
    { id: 'history', expression: 'days_observed >= 30 ? 600 : days_observed * 20' },
    { id: 'confirmed', expression: 'confirmations >= 4 ? 300 : confirmations * 75' },
    { id: 'recent', expression: 'stale_hours >= 24 ? 0 : 100 - stale_hours * 4' },
  ],
  tiers: [
    { name: 'outstanding', min: 800 },
    { name: 'good', min: 500 },
    { name: 'fair', min: 200 },
    { name: 'weak', min: 0 },
  ],
  vectors: [
    {
      facts: {
        discount_bps: 2_500,
        claimed_discount_bps: 3_000,
        reference_known: true,
        days_observed: 30,
        confirmations: 4,
        stale_hours: 0,
        age_hours: 0,
        at_low: true,
        in_stock: true,
      },
      gates_failed: [],
      score: 700,
      confidence: 1_000,
      tier: 'good',
    },
    {
      facts: {
        discount_bps: 6_000,
        claimed_discount_bps: 0,
        reference_known: true,
        days_observed: 14,
        confirmations: 1,
        stale_hours: 5,
        age_hours: 100,
        at_low: true,
        in_stock: true,
      },
      gates_failed: [],
      score: 900,
      confidence: 435,
      tier: 'outstanding',
    },
    {
      facts: {
        discount_bps: 499,
        claimed_discount_bps: 7_000,
        reference_known: true,
        days_observed: 20,
        confirmations: 2,
        stale_hours: 49,
        age_hours: 10,
        at_low: false,
        in_stock: false,
      },
      gates_failed: ['discount', 'stock', 'fresh'],
      score: 145,
      confidence: 550,
      tier: 'weak',
    },
    {
      facts: {
        discount_bps: 0,
        claimed_discount_bps: 5_000,
        reference_known: false,
        days_observed: 3,
        confirmations: 3,
        stale_hours: 1,
        age_hours: 71,
        at_low: false,
        in_stock: true,
      },
      gates_failed: ['reference', 'discount'],
      score: 1,
      confidence: 381,
      tier: 'weak',
    },
  ],
};
