-- Plain values in env: name -> text, or JSON.
ALTER TABLE deployments ADD COLUMN vars TEXT NOT NULL DEFAULT '{}';
