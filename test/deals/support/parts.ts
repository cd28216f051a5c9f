/** Sources, observations and deals for tests. */
import type { Deal } from '../../../builtin-tenants/deals/src/prices/publish.ts';
import type { Facts } from '../../../builtin-tenants/deals/src/rules/ruleset.ts';
import type { Source } from '../../../builtin-tenants/deals/src/sources/source.ts';

export const DAY_MS = 86_400_000;
export const HOUR_MS = 3_600_000;
export const NOON = Date.UTC(2026, 10, 1, 12);

export const SOURCE: Source = {
  id: 'shop',
  kind: 'google-merchant',
  url: 'https://shop.example/feed.xml',
  merchant: 'The Shop',
  country: 'DE',
  currency: 'EUR',
  every_s: 3_600,
  legal_basis: 'a contract',
};

export const FACTS: Facts = {
  discount_bps: 2_000,
  claimed_discount_bps: 0,
  reference_known: true,
  days_observed: 30,
  confirmations: 4,
  stale_hours: 0,
  age_hours: 0,
  at_low: true,
  in_stock: true,
};

export function deal(id: string, minor: number, more: Partial<Deal> = {}): Deal {
  return {
    id,
    revision: 1,
    offer: {
      id: `off_${id}`,
      merchant: 'The Shop',
      gtin: null,
      sku: id,
      category: null,
      variant: '',
      condition: 'new',
      country: 'DE',
    },
    title: `Thing ${id}`,
    url: `https://shop.example/${id}`,
    price: { minor, currency: 'EUR', exponent: 2 },
    reference: null,
    discount_bps: 1_000,
    claimed_discount_bps: 0,
    at_low: true,
    score: 500,
    confidence: 500,
    tier: 'good',
    reasons: [],
    facts: FACTS,
    ruleset: { version: 1, digest: '' },
    evidence: [],
    availability: 'in_stock',
    demo: false,
    status: 'active',
    first_seen_at: new Date(NOON).toISOString(),
    last_verified_at: new Date(NOON).toISOString(),
    expires_at: new Date(NOON + 2 * DAY_MS).toISOString(),
    ...more,
  };
}
