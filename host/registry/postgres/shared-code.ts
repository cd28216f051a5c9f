/**
 * The code of versions as all nodes have it: each keeps a copy in its data folder, and takes from here what it has not. A
 * bundle is in pieces, for whoever writes holds up all other writers. What is incomplete has another digest than its name.
 */
import type { Client } from '@libsql/client/sqlite3';
import type { CodeBundle } from '../../shared/contracts.ts';
import { NOW } from '../leases.ts';

const PART_CHARACTERS = 262_144;
/** What was put is not removed for this long, ms: a deploy names it only once it is paid. */
const HOLD_MS = 3_600_000;

export class SharedCode {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  async put(digest: string, { modules, ...rest }: CodeBundle): Promise<void> {
    const encoded = modules.map((one) => ({ ...one, body: Buffer.from(one.body).toString('base64') }));
    const text = JSON.stringify({ ...rest, modules: encoded });
    for (let from = 0, part = 0; from < text.length; from += PART_CHARACTERS, part++) {
      await this.#client.execute(
        `INSERT INTO code_parts (digest, part, body, put_at) VALUES (?, ?, ?, ${NOW})
          ON CONFLICT (digest, part) DO UPDATE SET body = excluded.body, put_at = excluded.put_at`,
        [digest, part, text.slice(from, from + PART_CHARACTERS)],
      );
    }
  }

  async get(digest: string): Promise<CodeBundle | undefined> {
    const { rows } = await this.#client.execute('SELECT body FROM code_parts WHERE digest = ? ORDER BY part', [digest]);
    if (rows.length === 0) return undefined;
    const { modules, ...rest } = JSON.parse(rows.map(({ body }) => body).join('')) as Omit<CodeBundle, 'modules'> & {
      modules: (Omit<CodeBundle['modules'][number], 'body'> & { body: string })[];
    };
    return {
      ...rest,
      modules: modules.map((one) => ({ ...one, body: Buffer.from(one.body, 'base64') })),
    } as CodeBundle;
  }

  /** Removes what nothing refers to. @param unused which of these digests that is */
  async sweep(unused: (digests: string[]) => Promise<string[]>): Promise<void> {
    const { rows } = await this.#client.execute(
      `SELECT digest FROM code_parts GROUP BY digest HAVING max(put_at) < ${NOW} - ?`,
      [HOLD_MS],
    );
    for (const digest of await unused(rows.map((row) => String(row.digest)))) {
      const sql = `DELETE FROM code_parts WHERE digest = ? AND put_at < ${NOW} - ?`;
      await this.#client.execute(sql, [digest, HOLD_MS]);
    }
  }
}
