-- Counts and tells every change of what nodes remember, in the transaction that makes it.
CREATE FUNCTION note_change(subject text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE count bigint;
BEGIN
  INSERT INTO changes (topic, number) VALUES (subject, 1)
    ON CONFLICT (topic) DO UPDATE SET number = changes.number + 1 RETURNING number INTO count;
  PERFORM pg_notify('turnpike_changes', subject || ' ' || count);
END $$;

CREATE FUNCTION table_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM note_change(TG_ARGV[0]);
  RETURN NULL;
END $$;

CREATE FUNCTION setting_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM note_change('settings:' || coalesce(NEW.name, OLD.name));
  RETURN NULL;
END $$;

-- By row: a statement that changes none is no change.
CREATE TRIGGER deployments_heard AFTER INSERT OR UPDATE OR DELETE ON deployments
  FOR EACH ROW EXECUTE FUNCTION table_changed('deployments');
CREATE TRIGGER domains_heard AFTER INSERT OR UPDATE OR DELETE ON domains
  FOR EACH ROW EXECUTE FUNCTION table_changed('domains');
CREATE TRIGGER blocks_heard AFTER INSERT OR UPDATE OR DELETE ON blocks
  FOR EACH ROW EXECUTE FUNCTION table_changed('blocks');
CREATE TRIGGER settings_heard AFTER INSERT OR UPDATE OR DELETE ON settings
  FOR EACH ROW EXECUTE FUNCTION setting_changed();
-- Who owes, and who owes no more.
CREATE TRIGGER debts_heard AFTER UPDATE OF state, debtor ON payment_outgoing
  FOR EACH ROW WHEN (NEW.debtor IS NOT NULL AND (OLD.debtor IS NULL OR OLD.state <> NEW.state))
  EXECUTE FUNCTION table_changed('debts');
