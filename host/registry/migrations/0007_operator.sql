-- What the operator decided about a deployment: suspended since when and why, limits of its own (JSON: setting -> value),
-- and a note that nobody else sees.
ALTER TABLE deployments ADD COLUMN suspended_at INTEGER;
ALTER TABLE deployments ADD COLUMN suspended_reason TEXT;
ALTER TABLE deployments ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
ALTER TABLE deployments ADD COLUMN note TEXT;

-- Wallets and address ranges that the host does not serve.
CREATE TABLE blocks (
  subject TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('wallet', 'range')),
  reason TEXT,
  created_at INTEGER NOT NULL
) STRICT;

-- Acts of the operator. Written before the act, with its outcome (HTTP status) added after it: NULL where the host was
-- stopped meanwhile. Nothing else of a row changes, and only the oldest rows go.
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  system_at INTEGER NOT NULL,
  act TEXT NOT NULL,
  subject TEXT,
  parameters TEXT NOT NULL,
  reason TEXT,
  address TEXT NOT NULL,
  outcome INTEGER
) STRICT;
CREATE INDEX audit_subject ON audit (subject, id);

CREATE TRIGGER audit_changed BEFORE UPDATE ON audit
WHEN OLD.outcome IS NOT NULL OR OLD.id IS NOT NEW.id OR OLD.at IS NOT NEW.at OR OLD.system_at IS NOT NEW.system_at
  OR OLD.act IS NOT NEW.act OR OLD.subject IS NOT NEW.subject OR OLD.parameters IS NOT NEW.parameters
  OR OLD.reason IS NOT NEW.reason OR OLD.address IS NOT NEW.address
BEGIN
  SELECT RAISE(ABORT, 'the audit log is only added to');
END;

CREATE TRIGGER audit_removed BEFORE DELETE ON audit
WHEN OLD.id > (SELECT max(id) FROM audit) - 100000
BEGIN
  SELECT RAISE(ABORT, 'the audit log keeps its newest 100,000 rows');
END;

CREATE TRIGGER audit_bounded AFTER INSERT ON audit
BEGIN
  DELETE FROM audit WHERE id <= NEW.id - 100000;
END;
