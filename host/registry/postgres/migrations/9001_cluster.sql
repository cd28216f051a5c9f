-- Nodes by the names that their operator gave them. `node` is the id of the last start, by which its lease is called.
CREATE TABLE nodes (
  name TEXT NOT NULL PRIMARY KEY,
  node TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  draining INTEGER NOT NULL DEFAULT 0,
  removed INTEGER NOT NULL DEFAULT 0,
  -- By which other nodes call it, where it listens for them, and what it shows them. NULL: it is none of them (yet).
  number INTEGER UNIQUE,
  address TEXT,
  certificate TEXT
);

CREATE TRIGGER nodes_heard AFTER INSERT OR UPDATE OR DELETE ON nodes
  FOR EACH ROW EXECUTE FUNCTION table_changed('nodes');
-- Previews are versions.
CREATE TRIGGER versions_heard AFTER INSERT OR UPDATE OR DELETE ON versions
  FOR EACH ROW EXECUTE FUNCTION table_changed('deployments');
