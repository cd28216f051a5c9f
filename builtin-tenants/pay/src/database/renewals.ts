/**
 * Deployments of the host that renew from an account's credit, and what was taken for them. The database refuses a
 * charge for one that has ended; a charge that credit did not cover is told once for each term.
 */
import { eventsOf } from './notices.ts';

export const RENEWALS: string[] = [
  `CREATE TABLE renewals (
    id TEXT PRIMARY KEY,
    -- Of the token by which the host charges.
    hash TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL REFERENCES accounts (id),
    slug TEXT NOT NULL,
    -- The most that one term may cost.
    most INTEGER NOT NULL CHECK (most > 0),
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    -- The charge that failed last, and what for.
    failed_key TEXT,
    failed_amount INTEGER,
    failed_at INTEGER,
    last_failure TEXT
  ) STRICT`,
  'CREATE UNIQUE INDEX renewals_live ON renewals (account, slug) WHERE ended_at IS NULL',
  `CREATE TABLE renewal_charges (
    key TEXT PRIMARY KEY,
    renewal TEXT NOT NULL REFERENCES renewals (id)
  ) STRICT`,
  `CREATE TRIGGER renewal_charges_live BEFORE INSERT ON renewal_charges
    WHEN NOT EXISTS (SELECT 1 FROM renewals WHERE id = NEW.renewal AND ended_at IS NULL)
    BEGIN SELECT RAISE(ABORT, 'renewal: ended'); END`,
  `CREATE TRIGGER renewals_failed AFTER UPDATE OF failed_key ON renewals WHEN NEW.failed_key IS NOT OLD.failed_key
    AND NEW.failed_key IS NOT NULL
    BEGIN
      ${eventsOf('renewal_failed', 'NEW.account', 'NEW.failed_at', "json_object('slug', NEW.slug, 'price', NEW.failed_amount, 'reason', NEW.last_failure)")};
    END`,
];
