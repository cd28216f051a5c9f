/**
 * How often a wrong token may be tried, at all nodes together: some at once, then one in a while. What is kept is until
 * when the tries so far take, by the database's clock, so that clocks of nodes do not matter.
 */
import type { Registry } from './index.ts';
import { NOW } from './leases.ts';

const BURST = 10;
const REFILL_MS = 6_000;
/** Within so many ms another may be tried. */
const FREE_MS = (BURST - 1) * REFILL_MS;

const KEPT = 'CAST(settings.value AS BIGINT)';
const TAKEN = `SELECT ${KEPT} - ${NOW} AS taken FROM settings WHERE name = ?`;
/** One that is further ahead than tries can take was kept before the clock was set back, and does not count. */
const TRIED = `INSERT INTO settings (name, value) VALUES (?, CAST(${NOW} + ${REFILL_MS} AS TEXT))
  ON CONFLICT (name) DO UPDATE SET value = CAST(min(max(${KEPT}, ${NOW}), ${NOW} + ${FREE_MS}) + ${REFILL_MS} AS TEXT)
  WHERE ${KEPT} - ${NOW} NOT BETWEEN ${FREE_MS + 1} AND ${BURST * REFILL_MS}`;

export class Guesses {
  readonly #client: Registry['client'];
  readonly #args: [string];

  /** @param name of the setting that counts them */
  constructor({ client }: Pick<Registry, 'client'>, name: string) {
    this.#client = client;
    this.#args = [name];
  }

  /** One more was wrong. @returns 0 where it could be tried, else seconds until another one can */
  async failed(): Promise<number> {
    // A read waits for nobody: a flood of guesses does not hold up those who write.
    const [row] = (await this.#client.execute({ sql: TAKEN, args: this.#args })).rows;
    const waitMs = Number(row?.taken ?? 0) - FREE_MS;
    if (waitMs > 0 && waitMs <= REFILL_MS) return Math.ceil(waitMs / 1_000);
    const { rowsAffected } = await this.#client.execute({ sql: TRIED, args: this.#args });
    return rowsAffected === 1 ? 0 : REFILL_MS / 1_000;
  }
}
