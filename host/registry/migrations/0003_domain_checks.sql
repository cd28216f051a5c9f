-- Since when a verified domain's record has been missing; how many checks failed in a row while pending.
ALTER TABLE domains ADD COLUMN failing_since INTEGER;
ALTER TABLE domains ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
