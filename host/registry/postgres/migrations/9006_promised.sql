-- What a wallet has promised for work that is under way, at any node.
CREATE INDEX payments_promised ON payments (payer, asset)
  WHERE state IN ('verified', 'working', 'settling') AND channel IS NULL;
