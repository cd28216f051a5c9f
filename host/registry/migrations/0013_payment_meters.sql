-- What calls that are charged while they go on have cost so far, micro-USD: what a crash leaves behind is charged by it.
-- `attempt` as payments.attempts: a payment that was released and begun anew starts from nothing.
CREATE TABLE payment_meters (
  payment TEXT PRIMARY KEY,
  attempt INTEGER NOT NULL,
  total INTEGER NOT NULL CHECK (total >= 0)
) STRICT;
