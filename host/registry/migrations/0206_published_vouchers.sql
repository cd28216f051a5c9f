-- What a voucher is sent to the chain with, everybody can read there: it is its payer's word no longer.
ALTER TABLE payment_channels ADD COLUMN published INTEGER NOT NULL DEFAULT 0;
UPDATE payment_channels SET published = settled;
