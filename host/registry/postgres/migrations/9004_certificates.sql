-- What ACME needs of all nodes: certificates with their keys, the account's key, orders, proofs; see ../sealed-texts.ts.
CREATE TABLE certificates (
  name TEXT NOT NULL PRIMARY KEY,
  -- Another one with each write.
  mark TEXT NOT NULL,
  key_id TEXT NOT NULL,
  sealed BLOB NOT NULL
);

CREATE TRIGGER certificates_heard AFTER INSERT OR UPDATE OR DELETE ON certificates
  FOR EACH ROW EXECUTE FUNCTION table_changed('certificates');
