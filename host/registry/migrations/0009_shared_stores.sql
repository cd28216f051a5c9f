-- Stores of an owner that several deployments use: a row for each that has ever named one and still has its data. A store
-- goes with the last of them.
CREATE TABLE shared_stores (
  -- Lowercase 0x address.
  owner TEXT NOT NULL,
  -- Key of the binding, such as kv
  kind TEXT NOT NULL,
  id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (owner, kind, id, tenant)
) STRICT;
CREATE INDEX shared_stores_tenant ON shared_stores (tenant);
