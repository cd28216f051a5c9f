-- One row per settled renewal: the same payment never extends a slug twice.
CREATE TABLE renewals (
  payment_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL REFERENCES deployments (tenant),
  expires_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
