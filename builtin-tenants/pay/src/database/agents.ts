/** Agents that registered by the auth.md protocol, and how far the claim of each by a person has come. */
export const AGENTS: string[] = [
  `CREATE TABLE agent_registrations (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL REFERENCES accounts (id),
    claim_hash TEXT NOT NULL UNIQUE,
    claim_expires_at INTEGER NOT NULL,
    -- Of device_codes: the latest attempt.
    device_hash TEXT
  ) STRICT`,
  'CREATE INDEX agent_registrations_old ON agent_registrations (claim_expires_at)',
];
