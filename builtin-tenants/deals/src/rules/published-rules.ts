/** Published rule sets stay readable: the present one is written at start, and never changes under its version. */
import type { Database } from '../environment.ts';
import { sha256Hex } from '../ids.ts';
import { RULES, type RuleSet } from './ruleset.ts';

export interface PublishedRules {
  version: number;
  /** SHA-256 of the body, hex: its ETag. */
  digest: string;
  /** JSON text as it is sold. */
  body: string;
}

/** @throws Error where the present rules differ from what was published under their version */
export async function publishRules(db: Database, now: number, rules: RuleSet = RULES): Promise<PublishedRules> {
  const body = JSON.stringify(rules);
  const digest = await sha256Hex(body);
  await db
    .prepare('INSERT OR IGNORE INTO rulesets (version, digest, body, created_at) VALUES (?, ?, ?, ?)')
    .bind(rules.version, digest, body, now)
    .run();
  const stored = await readRules(db, rules.version);
  if (stored?.digest !== digest)
    throw new Error(
      `The rules of version ${rules.version} were already published with different content; give them a new version number.`,
    );
  return stored;
}

export async function readRules(db: Database, version: number): Promise<PublishedRules | undefined> {
  const row = await db
    .prepare('SELECT version, digest, body FROM rulesets WHERE version = ?')
    .bind(version)
    .first<PublishedRules>();
  return row ?? undefined;
}
