/** What settlements cost the host in gas, by day and tenant. */
import { type Money, micro } from '../../shared/money.ts';
import type { Registry } from '../index.ts';

export class GasStore {
  readonly #client: Registry['client'];

  constructor({ client }: Pick<Registry, 'client'>) {
    this.#client = client;
  }

  /** @param day `YYYY-MM-DD` */
  async add(day: string, tenant: string, cost: Money): Promise<void> {
    await this.#client.execute({
      sql: `INSERT INTO payment_gas (day, tenant, settlements, micro_usd) VALUES (?, ?, 1, ?)
        ON CONFLICT (day, tenant) DO UPDATE SET settlements = payment_gas.settlements + 1,
          micro_usd = payment_gas.micro_usd + excluded.micro_usd`,
      args: [day, tenant, Number(cost)],
    });
  }

  /** By tenant. */
  async of(day: string): Promise<Map<string, Money>> {
    const { rows } = await this.#client.execute({
      sql: 'SELECT tenant, micro_usd FROM payment_gas WHERE day = ?',
      args: [day],
    });
    return new Map(rows.map((row) => [String(row.tenant), micro(Number(row.micro_usd))]));
  }
}
