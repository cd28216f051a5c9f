/**
 * Mandates of wallets, and what was drawn on them. The database refuses what must never happen: a draw on a mandate
 * that has ended, one above what its period allows, and two of an account at once.
 */
import { eventsOf } from './notices.ts';

export const MANDATES: string[] = [
  `CREATE TABLE mandates (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL REFERENCES accounts (id),
    -- What the host draws by; it goes when the mandate ends.
    sealed TEXT,
    payer TEXT NOT NULL,
    key_address TEXT NOT NULL,
    -- The most in each period, by the wallet's signature.
    most INTEGER NOT NULL CHECK (most > 0),
    period_days INTEGER NOT NULL CHECK (period_days > 0),
    -- What one draw buys, and below which credit it is made.
    amount INTEGER NOT NULL CHECK (amount > 0 AND amount <= most),
    below INTEGER NOT NULL CHECK (below > 0),
    -- Times are real ones, as of the signature.
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    ended_why TEXT CHECK (ended_why IN ('account', 'replaced', 'wallet', 'expired')),
    -- Draws that failed, one after the other, and until when none is tried.
    failures INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER NOT NULL DEFAULT 0,
    last_failure TEXT,
    -- Business time, as what accounts are told.
    failed_at INTEGER,
    CHECK ((ended_at IS NULL) = (sealed IS NOT NULL))
  ) STRICT`,
  'CREATE UNIQUE INDEX mandates_live ON mandates (account) WHERE ended_at IS NULL',
  `CREATE TABLE draws (
    id TEXT PRIMARY KEY,
    mandate TEXT NOT NULL REFERENCES mandates (id),
    account TEXT NOT NULL REFERENCES accounts (id),
    amount INTEGER NOT NULL CHECK (amount > 0),
    state TEXT NOT NULL CHECK (state IN ('begun', 'paid', 'failed')),
    -- The signed payment: only what is written here is ever presented.
    payment TEXT,
    why TEXT,
    at INTEGER NOT NULL,
    ended_at INTEGER
  ) STRICT`,
  'CREATE INDEX purchases_request ON purchases (request_id)',
  "CREATE UNIQUE INDEX draws_begun ON draws (account) WHERE state = 'begun'",
  'CREATE INDEX draws_mandate ON draws (mandate, at)',
  `CREATE TRIGGER draws_within_mandate BEFORE INSERT ON draws
    BEGIN
      SELECT RAISE(ABORT, 'mandate: ended') WHERE NOT EXISTS (
        SELECT 1 FROM mandates WHERE id = NEW.mandate AND account = NEW.account AND ended_at IS NULL AND expires_at > NEW.at);
      SELECT RAISE(ABORT, 'mandate: its limit is reached') WHERE NEW.amount + (
          SELECT coalesce(sum(d.amount), 0) FROM draws d JOIN mandates m ON m.id = d.mandate
          WHERE d.mandate = NEW.mandate AND d.state <> 'failed' AND d.at > NEW.at - m.period_days * 86400000) >
        (SELECT most FROM mandates WHERE id = NEW.mandate);
    END`,
  `CREATE TRIGGER draws_end_once BEFORE UPDATE ON draws WHEN OLD.state <> 'begun'
    BEGIN SELECT RAISE(ABORT, 'mandate: the draw has ended'); END`,
  `CREATE TRIGGER mandates_failed AFTER UPDATE OF failures ON mandates WHEN NEW.failures > OLD.failures
    BEGIN
      ${eventsOf('topup_failed', 'NEW.account', 'NEW.failed_at', "json_object('amount', NEW.amount, 'reason', NEW.last_failure)")};
    END`,
  `CREATE TRIGGER mandates_end_once BEFORE UPDATE OF sealed, ended_at, most, period_days, expires_at ON mandates
    WHEN OLD.ended_at IS NOT NULL BEGIN SELECT RAISE(ABORT, 'mandate: ended'); END`,
];
