-- The greatest voucher that was sent to the chain: whoever shows it, or a smaller one, may have read it there.
ALTER TABLE payment_channels ADD COLUMN published INTEGER NOT NULL DEFAULT 0;
UPDATE payment_channels SET published = settled;
