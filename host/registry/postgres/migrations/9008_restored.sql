-- A copy of the registry, such as a restored dump: no node takes or renews a lease there before its operator has said that
-- the one that it was copied from is gone. See ../restored.ts.
CREATE FUNCTION database_identity() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  number text := (SELECT oid FROM pg_database WHERE datname = current_database());
BEGIN
  RETURN (SELECT system_identifier FROM pg_control_system()) || '/' || number;
EXCEPTION WHEN insufficient_privilege THEN
  -- A managed server may keep that for itself; then copies within the server alone are told.
  RETURN number;
END $$;

CREATE FUNCTION refuse_when_copied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM settings WHERE name = 'cluster:database' AND value <> database_identity()) THEN
    RAISE EXCEPTION 'this database is a copy: turnpike cluster restored';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER leases_copied BEFORE INSERT OR UPDATE ON leases
  FOR EACH ROW EXECUTE FUNCTION refuse_when_copied();
