-- As whom the operator acted: `operator`, or `reader`, who may only look (and is noted when it logs in).
ALTER TABLE audit ADD COLUMN role TEXT NOT NULL DEFAULT 'operator';

DROP TRIGGER audit_changed;
CREATE TRIGGER audit_changed BEFORE UPDATE ON audit
WHEN OLD.outcome IS NOT NULL OR OLD.id IS NOT NEW.id OR OLD.at IS NOT NEW.at OR OLD.system_at IS NOT NEW.system_at
  OR OLD.act IS NOT NEW.act OR OLD.subject IS NOT NEW.subject OR OLD.parameters IS NOT NEW.parameters
  OR OLD.reason IS NOT NEW.reason OR OLD.address IS NOT NEW.address OR OLD.role IS NOT NEW.role
BEGIN
  SELECT RAISE(ABORT, 'the audit log is only added to');
END;
