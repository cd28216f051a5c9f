-- Money leaves the host only against money that arrived: what a channel's settlements cover is counted as it is given
-- to payouts and refunds, and the database itself refuses what is not covered, whoever asks.
ALTER TABLE payment_outgoing ADD COLUMN covered INTEGER NOT NULL DEFAULT 0;
UPDATE payment_outgoing SET covered = 1 WHERE state IN ('owed', 'sending', 'sent');
UPDATE payment_outgoing SET covered = 1 WHERE state = 'stuck' AND attempts > 0;
ALTER TABLE payment_channels ADD COLUMN committed INTEGER NOT NULL DEFAULT 0
  CHECK (committed >= 0 AND committed <= settled);
UPDATE payment_channels SET committed = min(settled, (
  SELECT coalesce(sum(amount), 0) FROM payment_outgoing
  WHERE payment_outgoing.channel = payment_channels.id AND covered = 1));
CREATE INDEX payment_outgoing_waiting ON payment_outgoing (channel) WHERE state = 'waiting';

CREATE TRIGGER payment_outgoing_commit AFTER UPDATE OF covered ON payment_outgoing
WHEN NEW.covered = 1 AND OLD.covered = 0 AND NEW.channel IS NOT NULL
BEGIN
  UPDATE payment_channels SET committed = committed + NEW.amount WHERE id = NEW.channel;
END;

CREATE TRIGGER payment_outgoing_insert BEFORE INSERT ON payment_outgoing
WHEN NEW.state IN ('owed', 'sending', 'sent') AND (NEW.kind IN ('payout', 'fee') OR NEW.channel IS NOT NULL)
BEGIN
  SELECT RAISE(ABORT, 'a payout waits until its payment is answered and covered');
END;

CREATE TRIGGER payment_outgoing_due BEFORE UPDATE OF state ON payment_outgoing
WHEN NEW.state IN ('owed', 'sending') AND (
  NEW.covered = 0 AND (NEW.kind IN ('payout', 'fee') OR NEW.channel IS NOT NULL)
  OR NEW.kind IN ('payout', 'fee') AND (SELECT state FROM payments WHERE id = NEW.payment) <> 'answered')
BEGIN
  SELECT RAISE(ABORT, 'a payout waits until its payment is answered and covered');
END;

CREATE TRIGGER payments_paid_out BEFORE UPDATE OF state ON payments
WHEN NEW.state IN ('refund_owed', 'refunded') AND OLD.state NOT IN ('refund_owed', 'refunded') AND EXISTS (
  SELECT 1 FROM payment_outgoing
  WHERE payment = NEW.id AND kind IN ('payout', 'fee') AND state IN ('sending', 'sent'))
BEGIN
  SELECT RAISE(ABORT, 'a payment that is paid out is not refunded');
END;

-- Work that ended after its channel did: nothing will ever pay for it.
CREATE TRIGGER payment_outgoing_withdrawn AFTER INSERT ON payment_outgoing
WHEN NEW.state = 'waiting' AND NEW.kind IN ('payout', 'fee')
  AND (SELECT state FROM payment_channels WHERE id = NEW.channel) IN ('closed', 'failed')
BEGIN
  UPDATE payment_outgoing SET state = 'stuck', error = 'the deposit never came: its channel was closed before the work ended'
  WHERE id = NEW.id;
END;
