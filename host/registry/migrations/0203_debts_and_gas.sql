-- What a tenant's own wallet received and has to give back is its debt: held back from its later revenue.
ALTER TABLE payment_outgoing ADD COLUMN debtor TEXT;
ALTER TABLE payment_outgoing ADD COLUMN withheld INTEGER NOT NULL DEFAULT 0
  CHECK (withheld >= 0 AND withheld <= amount);
CREATE INDEX payment_outgoing_debts ON payment_outgoing (debtor) WHERE debtor IS NOT NULL;
DROP INDEX payment_outgoing_open;
CREATE INDEX payment_outgoing_open ON payment_outgoing (state, kind) WHERE state NOT IN ('sent', 'waived');

CREATE TRIGGER payment_outgoing_debt BEFORE UPDATE OF state ON payment_outgoing
WHEN NEW.state IN ('owed', 'sending') AND NEW.debtor IS NOT NULL AND NEW.withheld < NEW.amount
BEGIN
  SELECT RAISE(ABORT, 'a debt is paid from what was held back for it');
END;

-- What settlements for a tenant cost the host, by UTC day.
CREATE TABLE payment_gas (
  day TEXT NOT NULL,
  tenant TEXT NOT NULL,
  settlements INTEGER NOT NULL,
  micro_usd INTEGER NOT NULL,
  PRIMARY KEY (day, tenant)
) STRICT;
