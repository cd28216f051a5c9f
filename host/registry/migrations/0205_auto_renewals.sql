-- Deployments that their owner lets renew, and the payment of the renewal that is under way.
CREATE TABLE auto_renewals (
  tenant TEXT PRIMARY KEY REFERENCES deployments (tenant),
  mandate TEXT NOT NULL,
  -- Real time, as of the signature.
  until INTEGER NOT NULL,
  -- The signed payment, and which expiry it is for: only what is written here is ever presented.
  payment TEXT,
  payment_for INTEGER,
  failures INTEGER NOT NULL DEFAULT 0,
  next_at INTEGER NOT NULL DEFAULT 0,
  last_failure TEXT,
  created_at INTEGER NOT NULL
) STRICT;
