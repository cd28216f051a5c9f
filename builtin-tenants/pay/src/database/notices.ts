/**
 * What accounts are told by webhook. The ledger's own transactions decide when credit is low and when a suspension is
 * over, so that no crash comes between a movement and the notice of it, and no movement is told twice.
 */

/** Events that are kept of one webhook: a receiver that is away cannot fill the database. */
export const KEPT_EVENTS = 200;

/** Credit of an account with what is held, which may yet come back: a call that is under way is no low balance. */
const CREDIT = `(SELECT coalesce(sum(a.balance), 0) FROM grants g JOIN ledger_accounts a ON a.id = 'grant:' || g.id
    WHERE g.account = t.account AND (g.expires_at IS NULL OR g.expires_at > t.at)) +
  (SELECT coalesce(sum(a.balance), 0) FROM holds h JOIN ledger_accounts a ON a.id = 'hold:' || h.id
    WHERE h.account = t.account AND h.settled_at IS NULL)`;

const TOLD = `EXISTS (SELECT 1 FROM ledger_transactions t JOIN account_notices n ON n.account = t.account
  WHERE t.id = NEW.transaction_id AND t.kind NOT IN ('hold', 'release'))`;

/** One event for each webhook of the account. @param data SQL of a JSON object */
export function eventsOf(type: string, account: string, at: string, data: string): string {
  return `INSERT INTO webhook_events (id, webhook, type, data, at, delivery, next_at)
    SELECT 'evt_' || lower(hex(randomblob(13))), id, '${type}', ${data}, ${at}, 'waiting', 0
    FROM webhooks WHERE account = ${account}`;
}

export const NOTICES: string[] = [
  `CREATE TABLE account_notices (
    account TEXT PRIMARY KEY REFERENCES accounts (id),
    -- Credit below this is low; NULL: nobody asks.
    low_below INTEGER CHECK (low_below > 0),
    is_low INTEGER NOT NULL DEFAULT 0 CHECK (is_low IN (0, 1)),
    -- What a service charges, and the credit did not cover; NULL: not suspended.
    suspended_for INTEGER CHECK (suspended_for > 0),
    -- As of the last movement, with what is held.
    credit INTEGER NOT NULL DEFAULT 0,
    at INTEGER NOT NULL
  ) STRICT`,
  `CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL REFERENCES accounts (id),
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    created_at INTEGER NOT NULL
  ) STRICT`,
  'CREATE INDEX webhooks_account ON webhooks (account)',
  `CREATE TABLE webhook_events (
    place INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    webhook TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    type TEXT NOT NULL,
    data TEXT NOT NULL,
    -- Business time; next_at is real time.
    at INTEGER NOT NULL,
    delivery TEXT NOT NULL CHECK (delivery IN ('waiting', 'delivered', 'given_up')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER
  ) STRICT`,
  "CREATE INDEX webhook_events_due ON webhook_events (next_at) WHERE delivery = 'waiting'",
  'CREATE INDEX webhook_events_webhook ON webhook_events (webhook, place)',
  'CREATE INDEX holds_open_account ON holds (account) WHERE settled_at IS NULL',
  `CREATE TRIGGER webhook_events_bounded AFTER INSERT ON webhook_events
    BEGIN
      DELETE FROM webhook_events WHERE webhook = NEW.webhook AND place <
        (SELECT place FROM webhook_events WHERE webhook = NEW.webhook ORDER BY place DESC LIMIT 1 OFFSET ${KEPT_EVENTS - 1});
    END`,
  `CREATE TRIGGER ledger_seals_notice AFTER INSERT ON ledger_seals WHEN ${TOLD}
    BEGIN
      UPDATE account_notices SET (credit, at) =
          (SELECT ${CREDIT}, t.at FROM ledger_transactions t WHERE t.id = NEW.transaction_id)
        WHERE account = (SELECT account FROM ledger_transactions WHERE id = NEW.transaction_id);
    END`,
  `CREATE TRIGGER account_notices_low AFTER UPDATE OF credit ON account_notices
    WHEN NEW.is_low = 0 AND NEW.credit < NEW.low_below
    BEGIN
      UPDATE account_notices SET is_low = 1 WHERE account = NEW.account;
      ${eventsOf('balance_low', 'NEW.account', 'NEW.at', "json_object('balance', NEW.credit, 'lowBalance', NEW.low_below)")};
    END`,
  `CREATE TRIGGER account_notices_enough AFTER UPDATE OF credit ON account_notices
    WHEN NEW.is_low = 1 AND NEW.credit >= coalesce(NEW.low_below, 0)
    BEGIN UPDATE account_notices SET is_low = 0 WHERE account = NEW.account; END`,
  `CREATE TRIGGER account_notices_suspended AFTER UPDATE OF suspended_for ON account_notices
    WHEN OLD.suspended_for IS NULL AND NEW.suspended_for IS NOT NULL
    BEGIN
      ${eventsOf('account_suspended', 'NEW.account', 'NEW.at', "json_object('balance', NEW.credit, 'price', NEW.suspended_for)")};
    END`,
  `CREATE TRIGGER account_notices_resumed AFTER UPDATE OF credit ON account_notices
    WHEN NEW.credit >= NEW.suspended_for
    BEGIN
      UPDATE account_notices SET suspended_for = NULL WHERE account = NEW.account;
      ${eventsOf('account_resumed', 'NEW.account', 'NEW.at', "json_object('balance', NEW.credit)")};
    END`,
];
