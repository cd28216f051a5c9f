-- Digest of where a payment was shown first and with what; a retry must come with the same. NULL: it cannot be retried.
ALTER TABLE payments ADD COLUMN place TEXT;
-- The handle by which a tenant captured its hold: every other one is refused.
ALTER TABLE payments ADD COLUMN captured_by TEXT;
-- Bodies of the answers of paid routes are files now: see payments/settlement/answers.ts.
