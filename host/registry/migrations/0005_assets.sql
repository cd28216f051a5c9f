-- Static files: JSON with the digest of their list and how they are served; NULL: none.
ALTER TABLE deployments ADD COLUMN assets TEXT;
ALTER TABLE versions ADD COLUMN assets TEXT;
