/**
 * The 90 days before now, by the plan of the demo shop: one observation a day and product, marked as demo. Days without
 * one are filled at each start: business time may have been moved, or the host was off.
 */
import type { Database, Statement } from '../environment.ts';
import { idOf, sha256Hex } from '../ids.ts';
import { offerKey, type Source } from '../sources/source.ts';
import { DEMO_PRODUCTS, demoPrice } from './shop.ts';

const DAY_MS = 86_400_000;
const DAYS = 90;

/** May run twice at once. */
export async function fillDemoHistory(db: Database, source: Source, now: number): Promise<void> {
  const last = await db
    .prepare('SELECT min(last_seen_at) AS at FROM offers WHERE source = ? AND demo = 1')
    .bind(source.id)
    .first<{ at: number | null }>();
  if (last?.at && last.at > now - 2 * DAY_MS) return;
  const statements: Statement[] = [];
  for (const product of DEMO_PRODUCTS) {
    const price = { minor: demoPrice(product, now), currency: 'EUR', exponent: 2 };
    const url = new URL(`products/${product.handle}`, new URL('./', source.url)).href;
    const key = offerKey(
      {
        merchant: source.merchant,
        title: product.title,
        url,
        gtin: product.gtin,
        sku: product.sku,
        variant: '',
        condition: 'new',
        price,
        availability: 'in_stock',
      },
      source.country,
    );
    const id = await idOf('off', key);
    const first = now - DAYS * DAY_MS;
    statements.push(
      db
        .prepare(
          `INSERT INTO offers (id, offer_key, source, merchant, title, url, gtin, sku, category, variant, condition, country,
             currency, exponent, availability, demo, first_seen_at, last_seen_at)
           VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, '', 'new', ?10, 'EUR', 2, 'in_stock', 1, ?11, ?12)
           ON CONFLICT DO UPDATE SET last_seen_at = max(last_seen_at, ?12), dirty = 1`,
        )
        .bind(
          id,
          key,
          source.id,
          source.merchant,
          product.title,
          url,
          product.gtin,
          product.sku,
          product.category,
          source.country,
          first,
          now - DAY_MS,
        ),
    );
    const digest = await sha256Hex(`demo history of ${product.sku}`);
    for (let day = DAYS; day >= 1; day--) {
      const at = now - day * DAY_MS;
      statements.push(
        db
          .prepare(
            `INSERT INTO observations (offer, at, state, minor, list_minor, availability, url, sha256)
             SELECT ?1, ?2, 'ok', ?3, ?4, 'in_stock', ?5, ?6 WHERE EXISTS (SELECT 1 FROM offers WHERE id = ?1)
               AND NOT EXISTS (SELECT 1 FROM observations WHERE offer = ?1 AND at > ?2 - ${DAY_MS})`,
          )
          .bind(id, at, demoPrice(product, at), product.base, url, digest),
      );
    }
  }
  await db.batch(statements);
}
