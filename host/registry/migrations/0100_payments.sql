-- One row per credential that was verified. Amounts are integer micro-USD, times milliseconds.
CREATE TABLE payments (
  id TEXT PRIMARY KEY,
  -- Challenge id (MPP), or network, payer and nonce (x402): what makes the credential unique.
  credential_id TEXT NOT NULL UNIQUE,
  credential_hash TEXT NOT NULL,
  -- Kept while it may still have to be settled; NULL afterwards.
  credential TEXT,
  rail TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('operation', 'route', 'binding')),
  -- Name of the operation, or method and path of the route.
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  slug TEXT,
  tenant TEXT,
  asset TEXT NOT NULL,
  payer TEXT NOT NULL,
  payer_did TEXT NOT NULL,
  -- Where the chain sends the money, and who it is for in the end.
  recipient TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  custody TEXT NOT NULL CHECK (custody IN ('direct', 'collected', 'channel')),
  channel TEXT,
  authorized INTEGER NOT NULL CHECK (authorized >= 0),
  -- Decided when the work is done; NULL before.
  charged INTEGER CHECK (charged IS NULL OR (charged >= 0 AND charged <= authorized)),
  fee_bps INTEGER NOT NULL DEFAULT 0,
  fee INTEGER NOT NULL DEFAULT 0,
  refunded INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL CHECK (state IN
    ('verified', 'working', 'settling', 'settled', 'answered', 'released', 'refund_owed', 'refunded')),
  -- What a recovery needs: the terms of the offer, and what prepare() returned.
  terms TEXT NOT NULL,
  prepared TEXT,
  settle_before INTEGER,
  pending_since INTEGER,
  reference TEXT,
  receipt TEXT,
  answer_status INTEGER,
  answer_headers TEXT,
  answer_body BLOB,
  answer_complete INTEGER NOT NULL DEFAULT 0,
  client_gone INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 1,
  error TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  settled_at INTEGER
) STRICT;
CREATE INDEX payments_open ON payments (state) WHERE state IN ('verified', 'working', 'settling', 'settled', 'refund_owed');
CREATE INDEX payments_tenant ON payments (tenant, created_at);
CREATE INDEX payments_slug ON payments (slug, created_at);
CREATE INDEX payments_answered ON payments (updated_at) WHERE answer_body IS NOT NULL;

-- A client's Idempotency-Key: bound to the payer and the scope, so nobody else can read the answer.
CREATE TABLE payment_keys (
  key TEXT PRIMARY KEY,
  payment TEXT NOT NULL REFERENCES payments (id),
  request_hash TEXT,
  created_at INTEGER NOT NULL
) STRICT;

-- Things that may happen once: proofs of ownership.
CREATE TABLE payment_claims (
  key TEXT PRIMARY KEY,
  expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX payment_claims_expiry ON payment_claims (expires_at);

-- Double-entry bookkeeping. The lines of one transaction sum to zero per asset; nothing is ever changed.
CREATE TABLE ledger (
  id INTEGER PRIMARY KEY,
  txn TEXT NOT NULL,
  account TEXT NOT NULL,
  asset TEXT NOT NULL,
  amount INTEGER NOT NULL,
  kind TEXT NOT NULL,
  payment TEXT,
  reference TEXT,
  at INTEGER NOT NULL,
  UNIQUE (txn, account, asset)
) STRICT;
CREATE INDEX ledger_account ON ledger (account, asset);
CREATE INDEX ledger_payment ON ledger (payment);
CREATE INDEX ledger_reference ON ledger (reference) WHERE reference IS NOT NULL;
CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is immutable'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is immutable'); END;

-- Session channels: what their payer deposited, what their vouchers authorize, and what was spent of it.
CREATE TABLE payment_channels (
  id TEXT PRIMARY KEY,
  asset TEXT NOT NULL,
  payer TEXT NOT NULL,
  payee TEXT NOT NULL,
  signer TEXT NOT NULL,
  descriptor TEXT NOT NULL,
  escrow TEXT NOT NULL,
  chain_id INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('opening', 'open', 'closing', 'closed', 'failed')),
  open_transaction TEXT,
  open_hash TEXT,
  deposit INTEGER NOT NULL,
  voucher INTEGER NOT NULL,
  voucher_signature TEXT NOT NULL,
  -- Reserved by calls in flight, and captured by calls that succeeded; together at most the voucher.
  reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  captured INTEGER NOT NULL DEFAULT 0 CHECK (captured >= 0),
  units INTEGER NOT NULL DEFAULT 0,
  settled INTEGER NOT NULL DEFAULT 0,
  close_requested_at INTEGER NOT NULL DEFAULT 0,
  close_hash TEXT,
  error TEXT,
  created_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  settled_at INTEGER,
  CHECK (reserved + captured <= voucher)
) STRICT;
CREATE INDEX payment_channels_open ON payment_channels (state) WHERE state IN ('opening', 'open', 'closing');

-- Vouchers that a settlement without closing may present: the greatest that does not exceed what was captured.
CREATE TABLE payment_vouchers (
  channel TEXT NOT NULL REFERENCES payment_channels (id),
  cumulative INTEGER NOT NULL,
  signature TEXT NOT NULL,
  PRIMARY KEY (channel, cumulative)
) STRICT;

-- Money that the host has to send: payouts, the operator's share, refunds.
CREATE TABLE payment_outgoing (
  id TEXT PRIMARY KEY,
  payment TEXT NOT NULL REFERENCES payments (id),
  kind TEXT NOT NULL CHECK (kind IN ('payout', 'fee', 'refund')),
  asset TEXT NOT NULL,
  -- The wallet that owes it.
  source TEXT NOT NULL,
  recipient TEXT NOT NULL,
  amount INTEGER NOT NULL CHECK (amount > 0),
  -- waiting: the answer is not out yet, or the channel that pays for it was not settled that far.
  state TEXT NOT NULL CHECK (state IN ('waiting', 'owed', 'sending', 'sent', 'stuck', 'waived')),
  channel TEXT,
  transfer TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  error TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX payment_outgoing_open ON payment_outgoing (state) WHERE state NOT IN ('sent', 'waived');
CREATE INDEX payment_outgoing_payment ON payment_outgoing (payment);

-- A signed transaction that pays several of them at once; stored before it is sent, so it can be sent again.
CREATE TABLE payment_transfers (
  id TEXT PRIMARY KEY,
  asset TEXT NOT NULL,
  source TEXT NOT NULL,
  transaction_raw TEXT NOT NULL,
  hash TEXT NOT NULL,
  valid_until INTEGER,
  state TEXT NOT NULL CHECK (state IN ('sending', 'sent', 'failed')),
  created_at INTEGER NOT NULL
) STRICT;
