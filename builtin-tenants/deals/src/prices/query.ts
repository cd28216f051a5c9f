/** The filter of GET /v1/deals and of watches: parsed and checked in one place, turned into SQL with bound values. */
import * as z from 'zod/mini';
import type { Database } from '../environment.ts';
import { base64Url, deriveKey, fromBase64Url } from '../ids.ts';
import { fault, invalidField } from '../problem.ts';
import type { Deal } from './publish.ts';

const whole = (lowest: number, highest: number) => z.number().check(z.int(), z.gte(lowest), z.lte(highest));

export const querySchema = z.strictObject({
  q: z.optional(z.string().check(z.minLength(1), z.maxLength(100))),
  category: z.optional(z.string().check(z.minLength(1), z.maxLength(100))),
  merchant: z.optional(z.string().check(z.minLength(1), z.maxLength(80))),
  gtin: z.optional(z.string().check(z.regex(/^\d{8,14}$/))),
  country: z.optional(z.string().check(z.regex(/^[A-Z]{2}$/))),
  currency: z.optional(z.string().check(z.regex(/^[A-Z]{3}$/))),
  max_price_minor: z.optional(whole(0, 1e12)),
  min_discount_bps: z.optional(whole(0, 10_000)),
  min_score: z.optional(whole(0, 1_000)),
  min_confidence: z.optional(whole(0, 1_000)),
  at_low: z.optional(z.boolean()),
  availability: z.optional(z.enum(['in_stock', 'out_of_stock', 'preorder', 'unknown'])),
});

export type DealQuery = z.infer<typeof querySchema>;

export const SORTS = ['score', 'discount', 'price', 'newest'] as const;
export type Sort = (typeof SORTS)[number];

export interface DealSearch {
  query: DealQuery;
  /** Only deals that changed at or after this time, ms. */
  since?: number;
  sort: Sort;
  limit: number;
  cursor?: string;
}

const ORDER: Record<Sort, { column: string; direction: 'ASC' | 'DESC' }> = {
  score: { column: 'score', direction: 'DESC' },
  discount: { column: 'discount_bps', direction: 'DESC' },
  price: { column: 'minor', direction: 'ASC' },
  newest: { column: 'first_seen_at', direction: 'DESC' },
};

const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 100;
const NUMBERS = new Set(['max_price_minor', 'min_discount_bps', 'min_score', 'min_confidence']);
const OTHERS = new Set(['since', 'sort', 'limit', 'cursor']);

/** @throws Problem invalid_field for unknown, repeated or malformed parameters */
export function parseSearch(parameters: URLSearchParams): DealSearch {
  const raw: Record<string, unknown> = {};
  for (const name of new Set(parameters.keys())) {
    const values = parameters.getAll(name);
    const value = values[0] ?? '';
    if (values.length > 1) throw invalidField(`?${name}`, 'is given twice');
    if (OTHERS.has(name)) continue;
    if (!Object.hasOwn(querySchema.shape, name)) throw invalidField(`?${name}`, 'is not known');
    if (NUMBERS.has(name)) raw[name] = /^\d{1,13}$/.test(value) ? Number(value) : Number.NaN;
    else if (name === 'at_low')
      raw[name] = value === 'true' || value === '1' ? true : value === 'false' || value === '0' ? false : value;
    else raw[name] = name === 'country' || name === 'currency' ? value.toUpperCase() : value;
  }
  const query = querySchema.safeParse(raw);
  if (!query.success) {
    const [issue] = query.error.issues;
    throw invalidField(`?${String(issue?.path[0])}`, fault(issue));
  }
  if (query.data.max_price_minor !== undefined && query.data.currency === undefined) {
    throw invalidField('?max_price_minor', 'needs currency: prices are not converted');
  }
  const sort = (parameters.get('sort') ?? 'score') as Sort;
  if (!SORTS.includes(sort)) throw invalidField('?sort', `takes ${SORTS.join(', ')}`);
  if (sort === 'price' && query.data.currency === undefined)
    throw invalidField('?sort', 'by price needs currency: prices are not converted');
  const limitText = parameters.get('limit') ?? String(DEFAULT_LIMIT);
  const limit = Number(limitText);
  if (!/^\d{1,3}$/.test(limitText) || limit < 1 || limit > MAX_LIMIT)
    throw invalidField('?limit', `takes 1 to ${MAX_LIMIT}`);
  const sinceText = parameters.get('since');
  const since = sinceText === null ? undefined : Date.parse(sinceText);
  if (since !== undefined && Number.isNaN(since))
    throw invalidField('?since', 'takes an ISO time such as 2026-11-01T00:00:00Z');
  const cursor = parameters.get('cursor');
  return {
    query: query.data,
    sort,
    limit,
    ...(since === undefined ? {} : { since }),
    ...(cursor === null ? {} : { cursor }),
  };
}

/** Conditions on the table of deals, with their values. */
export function conditions(query: DealQuery): { sql: string[]; values: (string | number)[] } {
  const sql: string[] = [];
  const values: (string | number)[] = [];
  const add = (condition: string, value: string | number) => {
    sql.push(condition);
    values.push(value);
  };
  // Every word must occur; LIKE's own signs mean themselves.
  for (const word of (query.q ?? '').split(/\s+/).filter(Boolean).slice(0, 10)) {
    add(String.raw`title LIKE ? ESCAPE '\'`, `%${word.replace(/[\\%_]/g, String.raw`\$&`)}%`);
  }
  if (query.category !== undefined) add('category = ? COLLATE NOCASE', query.category);
  if (query.merchant !== undefined) add('merchant = ? COLLATE NOCASE', query.merchant);
  if (query.gtin !== undefined) add('gtin = ?', query.gtin);
  if (query.country !== undefined) add('country = ?', query.country);
  if (query.currency !== undefined) add('currency = ?', query.currency);
  if (query.max_price_minor !== undefined) add('minor <= ?', query.max_price_minor);
  if (query.min_discount_bps !== undefined) add('discount_bps >= ?', query.min_discount_bps);
  if (query.min_score !== undefined) add('score >= ?', query.min_score);
  if (query.min_confidence !== undefined) add('confidence >= ?', query.min_confidence);
  if (query.at_low !== undefined) add('at_low = ?', query.at_low ? 1 : 0);
  if (query.availability !== undefined) add('availability = ?', query.availability);
  return { sql, values };
}

export interface DealPage {
  deals: Deal[];
  cursor?: string;
}

/** @param now deals that ran out by then are not sold @throws Problem invalid_field for a cursor of another filter */
export async function findDeals(db: Database, search: DealSearch, secret: string, now: number): Promise<DealPage> {
  const { column, direction } = ORDER[search.sort];
  const { sql, values } = conditions(search.query);
  const where = ["status = 'active'", 'expires_at > ?', ...sql];
  const bound: (string | number)[] = [now, ...values];
  if (search.since !== undefined) {
    where.push('updated_at >= ?');
    bound.push(search.since);
  }
  const cursors = new Cursors(secret);
  if (search.cursor !== undefined) {
    const from = await cursors.read(search.cursor, search);
    const beyond = direction === 'DESC' ? '<' : '>';
    where.push(`(${column} ${beyond} ? OR (${column} = ? AND id > ?))`);
    bound.push(from.value, from.value, from.id);
  }
  const { results } = await db
    .prepare(
      `SELECT id, ${column} AS value, body FROM deals WHERE ${where.join(' AND ')} ORDER BY ${column} ${direction}, id LIMIT ?`,
    )
    .bind(...bound, search.limit + 1)
    .all<{ id: string; value: number; body: string }>();
  const page = results.slice(0, search.limit);
  const last = page.at(-1);
  return {
    deals: page.map(({ body }) => JSON.parse(body) as Deal),
    ...(results.length > search.limit && last ? { cursor: await cursors.write(last, search) } : {}),
  };
}

/** Cursors are signed and bound to the filter: nobody pages through what another query would not have shown. */
class Cursors {
  readonly #secret: string;

  constructor(secret: string) {
    this.#secret = secret;
  }

  async write({ id, value }: { id: string; value: number }, search: DealSearch): Promise<string> {
    const place = base64Url(new TextEncoder().encode(JSON.stringify([value, id])));
    return `${place}.${await this.#sign(place, search)}`;
  }

  async read(cursor: string, search: DealSearch): Promise<{ id: string; value: number }> {
    const [place = '', signature = ''] = cursor.split('.');
    if (signature === '' || (await this.#sign(place, search)) !== signature) {
      throw invalidField('?cursor', 'belongs to another query; use it with the same parameters');
    }
    const [value, id] = JSON.parse(new TextDecoder().decode(fromBase64Url(place))) as [number, string];
    return { id, value };
  }

  async #sign(place: string, { query, sort, since }: DealSearch): Promise<string> {
    const key = await crypto.subtle.importKey(
      'raw',
      await deriveKey(this.#secret, 'cursor'),
      { name: 'HMAC', hash: 'SHA-256' },
      false,
      ['sign'],
    );
    const sorted = Object.entries(query).sort(([a], [b]) => (a < b ? -1 : 1));
    const text = JSON.stringify([place, sorted, sort, since ?? null]);
    return base64Url(new Uint8Array(await crypto.subtle.sign('HMAC', key, new TextEncoder().encode(text)))).slice(
      0,
      22,
    );
  }
}
