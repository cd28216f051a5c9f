/** From observations to deals: for every offer that changed, its history is read, judged, and its deal written anew. */
import type { Database, Statement } from '../environment.ts';
import { idOf } from '../ids.ts';
import type { Facts } from '../rules/ruleset.ts';
import type { Scorer, Verdict } from '../rules/score.ts';
import { claimedDiscount, type PriceHistory, readHistory, referencePoint } from './reference.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const HISTORY_MS = 400 * DAY_MS;
const OFFERS_A_RUN = 500;
/** A deal that is not verified again for this long ends. */
const LIFE_MS = 48 * HOUR_MS;
const MOST_EVIDENCE = 10;

export interface OfferRow {
  id: string;
  source: string;
  merchant: string;
  title: string;
  url: string;
  gtin: string | null;
  sku: string | null;
  category: string | null;
  variant: string;
  condition: string;
  country: string;
  currency: string;
  exponent: number;
  availability: string;
  demo: number;
  /** When a source named it last, ms: later than the last row where nothing changed. */
  last_seen_at: number;
}

interface ObservationRow {
  at: number;
  state: string;
  minor: number | null;
  list_minor: number | null;
  availability: string | null;
  url: string;
  sha256: string;
}

export interface RulesReference {
  version: number;
  digest: string;
}

/** A deal as it is sold; README.md explains every member. */
export interface Deal {
  id: string;
  revision: number;
  offer: {
    id: string;
    merchant: string;
    gtin: string | null;
    sku: string | null;
    category: string | null;
    variant: string;
    condition: string;
    country: string;
  };
  title: string;
  url: string;
  price: { minor: number; currency: string; exponent: number };
  reference: { kind: 'min_30d_before_drop'; minor: number; from: string; to: string; days_observed: number } | null;
  discount_bps: number;
  claimed_discount_bps: number;
  at_low: boolean;
  score: number;
  confidence: number;
  tier: string;
  reasons: { id: string; points: number }[];
  facts: Facts;
  ruleset: RulesReference;
  evidence: { source: string; url: string; observed_at: string; sha256: string }[];
  availability: string;
  demo: boolean;
  status: 'active' | 'ended';
  first_seen_at: string;
  last_verified_at: string;
  expires_at: string;
}

/** Judges offers that changed since the last run, and ends deals whose time is over. @returns offers looked at */
export async function publishDeals(db: Database, scorer: Scorer, rules: RulesReference, now: number): Promise<number> {
  // An active deal ages without any observation: its facts are of the hour.
  await db
    .prepare(
      `UPDATE offers SET dirty = 1 WHERE id IN (SELECT offer FROM deals WHERE status = 'active' AND updated_at <= ?)`,
    )
    .bind(now - HOUR_MS)
    .run();
  const { results } = await db
    .prepare(`SELECT * FROM offers WHERE dirty = 1 ORDER BY last_seen_at LIMIT ${OFFERS_A_RUN}`)
    .all<OfferRow>();
  for (const offer of results) await publish(db, offer, scorer, rules, now);
  return results.length;
}

async function publish(
  db: Database,
  offer: OfferRow,
  scorer: Scorer,
  rules: RulesReference,
  now: number,
): Promise<void> {
  const { results: rows } = await db
    .prepare(
      'SELECT at, state, minor, list_minor, availability, url, sha256 FROM observations WHERE offer = ? AND at > ? ORDER BY at, id',
    )
    .bind(offer.id, now - HISTORY_MS)
    .all<ObservationRow>();
  const seen = rows.filter(
    (row): row is ObservationRow & { minor: number } => row.state === 'ok' && row.minor !== null,
  );
  const history = readHistory(seen.map(({ at, minor }) => ({ at, minor })));
  const last = seen.at(-1);
  const clean = db.prepare('UPDATE offers SET dirty = 0 WHERE id = ?').bind(offer.id);
  if (!history || !last) {
    await clean.run();
    return;
  }
  const verifiedAt = Math.max(last.at, offer.last_seen_at);
  const facts = factsOf(history, seen, { ...last, at: verifiedAt }, now);
  const verdict = scorer.judge(facts);
  const present = await db
    .prepare("SELECT id, revision, body, first_seen_at FROM deals WHERE offer = ? AND status = 'active'")
    .bind(offer.id)
    .first<{ id: string; revision: number; body: string; first_seen_at: number }>();
  const statements: Statement[] = [clean];
  if (verdict.gates_failed.length > 0) {
    if (present) statements.push(end(db, present, now));
  } else {
    const id = present?.id ?? (await idOf('deal', `${offer.id} ${history.since}`));
    const revision = (present?.revision ?? 0) + 1;
    const first = present?.first_seen_at ?? now;
    const deal = dealOf({ id, revision, first, offer, history, seen, last, verifiedAt, facts, verdict, rules });
    if (present && sameDeal(JSON.parse(present.body) as Deal, deal)) {
      statements.push(db.prepare('UPDATE deals SET updated_at = ?2 WHERE id = ?1').bind(id, now));
    } else statements.push(save(db, deal, now, first));
  }
  await db.batch(statements);
}

export function factsOf(
  history: PriceHistory,
  seen: { at: number; minor: number; list_minor: number | null; availability: string | null }[],
  last: { at: number; minor: number; list_minor: number | null; availability: string | null },
  now: number,
): Facts {
  return {
    discount_bps: history.discount_bps,
    claimed_discount_bps: claimedDiscount(last.minor, last.list_minor),
    reference_known: history.reference !== undefined,
    days_observed: history.days_observed,
    confirmations: seen.filter(({ at }) => at >= history.since).length,
    stale_hours: Math.max(0, Math.floor((now - last.at) / HOUR_MS)),
    age_hours: Math.max(0, Math.floor((now - history.since) / HOUR_MS)),
    at_low: history.at_low,
    in_stock: last.availability === 'in_stock',
  };
}

interface DealParts {
  id: string;
  revision: number;
  first: number;
  offer: OfferRow;
  history: PriceHistory;
  seen: (ObservationRow & { minor: number })[];
  last: ObservationRow & { minor: number };
  verifiedAt: number;
  facts: Facts;
  verdict: Verdict;
  rules: RulesReference;
}

function dealOf(parts: DealParts): Deal {
  const { id, revision, first, offer, history, seen, last, verifiedAt, facts, verdict, rules } = parts;
  const { reference } = history;
  // What the reference was seen at, the drop itself, and the latest.
  const base = reference && referencePoint(seen, reference);
  const after = seen.filter(({ at }) => at >= history.since);
  const evidence = [...(base ? [base] : []), ...after.slice(0, 1), ...after.slice(1).slice(2 - MOST_EVIDENCE)];
  return {
    id,
    revision,
    offer: {
      id: offer.id,
      merchant: offer.merchant,
      gtin: offer.gtin,
      sku: offer.sku,
      category: offer.category,
      variant: offer.variant,
      condition: offer.condition,
      country: offer.country,
    },
    title: offer.title,
    url: offer.url,
    price: { minor: last.minor, currency: offer.currency, exponent: offer.exponent },
    reference: reference
      ? { ...reference, from: new Date(reference.from).toISOString(), to: new Date(reference.to).toISOString() }
      : null,
    discount_bps: facts.discount_bps,
    claimed_discount_bps: facts.claimed_discount_bps,
    at_low: facts.at_low,
    score: verdict.score,
    confidence: verdict.confidence,
    tier: verdict.tier,
    reasons: verdict.reasons,
    facts,
    ruleset: rules,
    evidence: evidence.map(({ at, url, sha256 }) => ({
      source: offer.source,
      url,
      observed_at: new Date(at).toISOString(),
      sha256,
    })),
    availability: last.availability ?? 'unknown',
    demo: offer.demo === 1,
    status: 'active',
    first_seen_at: new Date(first).toISOString(),
    last_verified_at: new Date(verifiedAt).toISOString(),
    expires_at: new Date(verifiedAt + LIFE_MS).toISOString(),
  };
}

/** Whether a buyer would see any difference. */
function sameDeal(before: Deal, after: Deal): boolean {
  return JSON.stringify({ ...before, revision: 0 }) === JSON.stringify({ ...after, revision: 0 });
}

function save(db: Database, deal: Deal, now: number, first: number): Statement {
  return db
    .prepare(
      `INSERT INTO deals (id, offer, revision, status, body, title, merchant, category, gtin, country, currency, minor,
         discount_bps, score, confidence, at_low, availability, first_seen_at, updated_at, expires_at)
       VALUES (?1, ?2, ?3, 'active', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
       ON CONFLICT (id) DO UPDATE SET revision = ?3, status = 'active', body = ?4, title = ?5, category = ?7, minor = ?11, discount_bps = ?12,
         score = ?13, confidence = ?14, at_low = ?15, availability = ?16, updated_at = ?18, expires_at = ?19`,
    )
    .bind(
      deal.id,
      deal.offer.id,
      deal.revision,
      JSON.stringify(deal),
      deal.title,
      deal.offer.merchant,
      deal.offer.category,
      deal.offer.gtin,
      deal.offer.country,
      deal.price.currency,
      deal.price.minor,
      deal.discount_bps,
      deal.score,
      deal.confidence,
      deal.at_low ? 1 : 0,
      deal.availability,
      first,
      now,
      Date.parse(deal.expires_at),
    );
}

function end(db: Database, present: { id: string; revision: number; body: string }, now: number): Statement {
  const body = { ...(JSON.parse(present.body) as Deal), status: 'ended', revision: present.revision + 1 };
  return db
    .prepare("UPDATE deals SET status = 'ended', revision = ?2, body = ?3, updated_at = ?4 WHERE id = ?1")
    .bind(present.id, present.revision + 1, JSON.stringify(body), now);
}
