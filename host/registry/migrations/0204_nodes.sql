-- What several nodes of one host agree by. A lease is one node's until its time by the database's clock, unless that node
-- renews it; `epoch` counts its holders, and `note` is what one holder leaves to the next. Every node holds the lease
-- `node:<id>` for as long as it lives.
CREATE TABLE leases (
  name TEXT NOT NULL PRIMARY KEY,
  holder TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  valid_until INTEGER NOT NULL,
  note TEXT
) STRICT;
CREATE INDEX leases_holder ON leases (holder);

-- How often something was changed that nodes remember. Counted on PostgreSQL only.
CREATE TABLE changes (
  topic TEXT NOT NULL PRIMARY KEY,
  number INTEGER NOT NULL
) STRICT;

-- Which node is at work on an open payment.
ALTER TABLE payments ADD COLUMN node TEXT;
