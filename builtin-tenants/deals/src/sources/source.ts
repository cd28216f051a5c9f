/** Where offers come from: the operator's list of sources, checked; and what a parser finds in one. */
import * as z from 'zod/mini';
import type { Price } from '../prices/money.ts';

export const SOURCE_KINDS = ['google-merchant', 'csv', 'shopify', 'json-ld', 'feed'] as const;

/** One source as the operator writes it (secret SOURCES: a JSON array of these). */
export const sourceSchema = z.strictObject({
  id: z.string().check(z.regex(/^[a-z0-9][a-z0-9-]{0,39}$/)),
  kind: z.enum(SOURCE_KINDS),
  url: z.url(),
  /** Shown as the merchant where the source does not name one. */
  merchant: z.string().check(z.minLength(1), z.maxLength(80)),
  /** ISO 3166-1 alpha-2: the region that the prices are for. */
  country: z.string().check(z.regex(/^[A-Z]{2}$/)),
  /** Currency of prices that come without one. */
  currency: z.optional(z.string().check(z.regex(/^[A-Z]{3}$/))),
  every_s: z.optional(z.number().check(z.gte(300), z.lte(604_800))),
  /** Why the operator may use it: a contract, a public feed, an affiliate programme. */
  legal_basis: z.string().check(z.minLength(3), z.maxLength(200)),
  /** Columns of a CSV: ours -> theirs. */
  columns: z.optional(z.record(z.string(), z.string())),
  /** Generated data, marked wherever it is shown. */
  demo: z.optional(z.boolean()),
});

export type Source = z.infer<typeof sourceSchema>;

/** Products of one document: what an instance can note in one run. */
export const MOST_OFFERS = 50_000;
/** What is read before others get their turn. */
export const OFFERS_A_PIECE = 200;

export const DEFAULT_EVERY_S = 3_600;

/** @throws Error that names the faulty source */
export function parseSources(text: string): Source[] {
  const list = z.array(sourceSchema).safeParse(JSON.parse(text));
  if (!list.success) throw new Error(`SOURCES is not acceptable: ${z.prettifyError(list.error)}`);
  const ids = list.data.map(({ id }) => id);
  if (new Set(ids).size !== ids.length) throw new Error('SOURCES names an id twice.');
  return list.data;
}

export type Availability = 'in_stock' | 'out_of_stock' | 'preorder' | 'unknown';

/** One offer as a source states it now. */
export interface FoundOffer {
  merchant: string;
  title: string;
  /** Canonical address of the product page. */
  url: string;
  gtin?: string;
  sku?: string;
  category?: string;
  variant: string;
  condition: 'new' | 'used' | 'refurbished';
  price: Price;
  /** The shop's own list price, same currency. */
  listMinor?: number;
  availability: Availability;
  /** When the source itself says that a sale begins or ends next, ms: the price holds until then. */
  holdsUntil?: number;
}

/** What makes two observations the same offer: who sells what, in which variant and state, where, in which currency. */
export function offerKey(offer: FoundOffer, country: string): string {
  const what = offer.gtin ? `gtin:${offer.gtin}` : offer.sku ? `sku:${offer.sku}` : `url:${canonicalUrl(offer.url)}`;
  return [offer.merchant, what, offer.variant, offer.condition, country, offer.price.currency]
    .map((part) => part.trim().toLowerCase())
    .join('|');
}

/** Without fragment and tracking parameters. */
export function canonicalUrl(text: string): string {
  const url = new URL(text);
  url.hash = '';
  for (const name of [...url.searchParams.keys()]) {
    if (/^(?:utm_.*|gclid|fbclid|msclkid|ref|aff.*)$/i.test(name)) url.searchParams.delete(name);
  }
  return url.href;
}

/** GTIN-8, -12, -13 or -14 with a right check digit (GS1 General Specifications, 7.9). */
export function validGtin(text: string | undefined): string | undefined {
  const digits = text?.trim() ?? '';
  if (!/^(?:\d{8}|\d{12,14})$/.test(digits)) return undefined;
  const sum = [...digits.slice(0, -1)]
    .reverse()
    .reduce((total, digit, index) => total + Number(digit) * (index % 2 === 0 ? 3 : 1), 0);
  return (10 - (sum % 10)) % 10 === Number(digits.at(-1)) ? digits : undefined;
}

export function readAvailability(text: string | undefined): Availability {
  const word = (text ?? '')
    .toLowerCase()
    .replace(/^https?:\/\/schema\.org\//, '')
    .replace(/[\s_-]/g, '');
  if (['instock', 'available', 'limitedavailability', 'onlineonly', 'true'].includes(word)) return 'in_stock';
  if (['outofstock', 'soldout', 'discontinued', 'false'].includes(word)) return 'out_of_stock';
  if (['preorder', 'presale', 'backorder'].includes(word)) return 'preorder';
  return 'unknown';
}

export function readCondition(text: string | undefined): FoundOffer['condition'] {
  const word = (text ?? '').toLowerCase();
  return word.includes('refurb') ? 'refurbished' : word.includes('used') ? 'used' : 'new';
}

const LONGEST_TITLE = 300;

/** Text of a stranger for storage: one line, bounded, without control characters. It is escaped where it is shown. */
export function cleanText(text: string): string {
  return text
    .replace(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, ' ')
    .replace(/\s+/g, ' ')
    .trim()
    .slice(0, LONGEST_TITLE);
}

/** Only http(s) addresses may become links. */
export function webUrl(text: string | undefined, base?: string): string | undefined {
  if (!text) return undefined;
  try {
    const url = new URL(text, base);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : undefined;
  } catch {
    return undefined;
  }
}
