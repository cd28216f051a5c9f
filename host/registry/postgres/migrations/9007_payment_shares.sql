-- What payments that are under way at any node use up of what they share (../../payments/shares.ts). A row without a
-- payment says when the chain was last done with one of a share, ms of this database, for as long as that matters.
CREATE TABLE payment_shares (
  share TEXT NOT NULL,
  payment TEXT NOT NULL,
  amount INTEGER NOT NULL,
  ended_at INTEGER,
  PRIMARY KEY (share, payment)
);
CREATE INDEX payment_shares_payment ON payment_shares (payment);
CREATE INDEX payment_shares_ended ON payment_shares (ended_at) WHERE ended_at IS NOT NULL;

CREATE FUNCTION shares_ended() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE at bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
BEGIN
  WITH ended AS (DELETE FROM payment_shares WHERE payment = NEW.id RETURNING share)
    INSERT INTO payment_shares (share, payment, amount, ended_at)
      SELECT share, '', 0, at FROM ended WHERE OLD.state = 'settling'
    ON CONFLICT (share, payment) DO UPDATE SET ended_at = excluded.ended_at;
  -- Longer than any verification takes.
  DELETE FROM payment_shares WHERE ended_at < at - 120000;
  RETURN NULL;
END $$;
CREATE TRIGGER shares_ended AFTER UPDATE OF state ON payments FOR EACH ROW
  WHEN (OLD.state IN ('verified', 'working', 'settling') AND NEW.state NOT IN ('verified', 'working', 'settling'))
  EXECUTE FUNCTION shares_ended();

DROP INDEX payments_promised;
