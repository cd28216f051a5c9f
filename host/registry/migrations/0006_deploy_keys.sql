-- Keys that act for an owner's wallet. Of a key itself only the SHA-256 is kept.
CREATE TABLE deploy_keys (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  hash BLOB NOT NULL,
  name TEXT,
  -- JSON: [{slug, tenant}]; NULL: every deployment of the owner.
  slugs TEXT,
  -- JSON: names of actions.
  actions TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  used_at INTEGER
) STRICT;
CREATE INDEX deploy_keys_owner ON deploy_keys (owner);

-- Which wallet or key made a version; NULL in versions of earlier hosts.
ALTER TABLE versions ADD COLUMN made_by TEXT;

-- Beginning of the version's own address.
ALTER TABLE versions ADD COLUMN preview TEXT;
UPDATE versions SET preview = lower(hex(randomblob(6)));
