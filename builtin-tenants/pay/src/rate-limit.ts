/** Counts attempts in fixed windows, in the database: an instance may end at any time, and a limit must outlive it. */
import ipaddr from 'ipaddr.js';
import type { Database } from './environment.ts';
import { Problem } from './problem.ts';

/** Attempts allowed to a /48 of IPv6, as a multiple of what one caller may. */
const CALLERS_PER_SITE = 8;

/**
 * Limits a caller by its network: an IPv4 address, or a /64 of IPv6, which any single customer of a provider has. A /48,
 * which many providers give to one customer too, is limited as several callers.
 * @param action such as `sign-up`
 * @param address the caller's IP address; callers without a readable one count as one
 * @throws Problem rate_limited
 */
export async function limitCaller(
  db: Database,
  action: string,
  address: string | undefined,
  most: number,
  windowMs: number,
): Promise<void> {
  const { caller, site } = networkOf(address);
  await limit(db, `${action}:${caller}`, most, windowMs);
  if (site !== undefined) await limit(db, `${action}:${site}`, most * CALLERS_PER_SITE, windowMs);
}

/** The networks that an address counts for, such as `2001:db8:1:2::/64` and `2001:db8:1::/48`. */
export function networkOf(address: string | undefined): { caller: string; site?: string } {
  if (address === undefined || !ipaddr.isValid(address)) return { caller: 'unknown' };
  // `process` turns ::ffff:192.0.2.1 into 192.0.2.1.
  const parsed = ipaddr.process(address);
  if (!(parsed instanceof ipaddr.IPv6)) return { caller: parsed.toString() };
  const prefix = (parts: number) =>
    parsed.parts
      .slice(0, parts)
      .map((part) => part.toString(16))
      .join(':');
  return { caller: `${prefix(4)}::/64`, site: `${prefix(3)}::/48` };
}

/**
 * @param bucket what is limited, such as `sign-in:a@b.example`
 * @throws Problem rate_limited
 */
export async function limit(db: Database, bucket: string, most: number, windowMs: number): Promise<void> {
  const now = Date.now();
  const row = await db
    .prepare(
      `INSERT INTO rate_limits (bucket, window_ends, count) VALUES (?1, ?2 + ?3, 1)
       ON CONFLICT (bucket) DO UPDATE SET
         count = CASE WHEN window_ends <= ?2 THEN 1 ELSE count + 1 END,
         window_ends = CASE WHEN window_ends <= ?2 THEN ?2 + ?3 ELSE window_ends END
       RETURNING count, window_ends AS windowEnds`,
    )
    .bind(bucket, now, windowMs)
    .first<{ count: number; windowEnds: number }>();
  if (!row || row.count <= most) return;
  const seconds = Math.max(1, Math.ceil((row.windowEnds - now) / 1000));
  throw new Problem(
    'rate_limited',
    `Too many attempts; try again in ${seconds} s.`,
    {},
    { 'retry-after': `${seconds}` },
  );
}
