-- While a host moves in or out, and after it has moved out, no node takes or renews a lease: none starts, and none that
-- was stopped meanwhile goes on. See ../closed.ts.
CREATE FUNCTION refuse_when_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM settings WHERE name = 'cluster:closed') THEN
    RAISE EXCEPTION 'this cluster is closed: a host moves in or out, or has moved out';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER leases_closed BEFORE INSERT OR UPDATE ON leases
  FOR EACH ROW EXECUTE FUNCTION refuse_when_closed();
