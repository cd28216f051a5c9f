CREATE TABLE deployments (
  tenant TEXT PRIMARY KEY,
  slug TEXT NOT NULL,
  owner TEXT NOT NULL,
  owner_did TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('active', 'expired', 'decommissioned')),
  digest TEXT NOT NULL,
  version INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  compatibility_date TEXT NOT NULL,
  compatibility_flags TEXT NOT NULL,
  bindings TEXT NOT NULL,
  crons TEXT NOT NULL,
  paid_routes TEXT NOT NULL,
  handlers TEXT NOT NULL,
  pay_to TEXT NOT NULL,
  notify TEXT,
  builtin INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  warned_at INTEGER,
  decommissioned_at INTEGER,
  purge_at INTEGER,
  purged_at INTEGER,
  free_at INTEGER
) STRICT;
-- One living owner per slug, enforced by the database.
CREATE UNIQUE INDEX deployments_slug ON deployments (slug) WHERE state <> 'decommissioned';
CREATE INDEX deployments_by_slug ON deployments (slug, created_at);
CREATE INDEX deployments_expiry ON deployments (state, expires_at);

-- A slug that a paid call is being worked on for; held until the call ends or the time is over.
CREATE TABLE slug_claims (
  slug TEXT PRIMARY KEY,
  claim TEXT NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE versions (
  tenant TEXT NOT NULL REFERENCES deployments (tenant),
  version INTEGER NOT NULL,
  digest TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  note TEXT NOT NULL,
  handlers TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, version)
) STRICT;

CREATE TABLE secrets (
  tenant TEXT NOT NULL REFERENCES deployments (tenant),
  name TEXT NOT NULL,
  key_id TEXT NOT NULL,
  sealed BLOB NOT NULL,
  PRIMARY KEY (tenant, name)
) STRICT;

CREATE TABLE domains (
  domain TEXT PRIMARY KEY,
  tenant TEXT NOT NULL REFERENCES deployments (tenant),
  token TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('pending', 'verified', 'active')),
  reason TEXT,
  verified_by TEXT,
  created_at INTEGER NOT NULL,
  verified_at INTEGER,
  checked_at INTEGER,
  next_check_at INTEGER NOT NULL
) STRICT;
CREATE INDEX domains_tenant ON domains (tenant);

CREATE TABLE usage_daily (
  tenant TEXT NOT NULL,
  day TEXT NOT NULL,
  requests INTEGER NOT NULL DEFAULT 0,
  errors INTEGER NOT NULL DEFAULT 0,
  bytes_in INTEGER NOT NULL DEFAULT 0,
  bytes_out INTEGER NOT NULL DEFAULT 0,
  cpu_ms INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, day)
) STRICT;

CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;
