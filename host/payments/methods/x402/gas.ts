/**
 * What settling an x402 payment costs the host, which pays the gas: nothing is offered by x402 whose price is below it,
 * and nothing for a tenant whose settlements have used up the day's budget.
 */
import type { Registry } from '../../../registry/index.ts';
import { GasStore } from '../../../registry/payments/gas.ts';
import type { Clock } from '../../../shared/clock.ts';
import { add, type Money, micro, ZERO } from '../../../shared/money.ts';
import type { Terms } from '../../terms.ts';
import type { GasUse } from '../../types.ts';

/** Units that the dearer of both schemes uses, with a margin: `upto` was seen to take 110,000. */
const UNITS = 150_000n;
const WEI = 10n ** 18n;

export interface GasOptions {
  registry: Pick<Registry, 'client'>;
  clock: Clock;
  /** By chain id: wei for a unit; asks the network. */
  gasPrices: ReadonlyMap<number, () => Promise<bigint>>;
  /** Of networks whose price does not change, by name: what a settlement costs. */
  fixed?: ReadonlyMap<string, Money>;
  /** Of the network's coin, whole USD. */
  coinUsd: number;
  /** Prices below are not offered, whatever gas costs. */
  minPrice: Money;
  /** For a tenant and a day. */
  budget: Money;
  /** What is offered may be another now. */
  onChange: () => void;
}

/** @param gasPrice in wei, of a unit. @returns what a settlement costs, rounded up */
export function settlementCost(gasPrice: bigint, coinUsd: number): Money {
  const microUsd = UNITS * gasPrice * BigInt(Math.round(coinUsd * 1e6));
  return micro((microUsd + WEI - 1n) / WEI);
}

/**
 * What the host sends for a payment. Where the whole price is settled first, what a call did not use is sent back: by
 * `exact`, and on live routes.
 */
export function transactionsOf(
  scheme: 'exact' | 'upto',
  { kind, mode, live }: Pick<Terms, 'kind' | 'mode' | 'live'>,
): number {
  return live || (scheme === 'exact' && kind === 'route' && mode === 'metered') ? 2 : 1;
}

const byAmount = (a: Money, b: Money) => (a < b ? -1 : Number(a > b));

export class Gas {
  readonly #options: GasOptions;
  readonly #store: GasStore;
  /** By chain id, or name. */
  readonly #costs: Map<number | string, Money>;
  #day = '';
  #spent = new Map<string, Money>();

  constructor(options: GasOptions) {
    this.#options = options;
    this.#costs = new Map(options.fixed);
    this.#store = new GasStore(options.registry);
  }

  /** Asks the networks for the price. Without an answer the last one counts: nothing could be settled either. */
  async refresh(): Promise<void> {
    const { gasPrices, coinUsd, onChange } = this.#options;
    const asked = [...gasPrices].map(async ([chain, gasPrice]) => {
      const known = this.#cost(chain);
      const cost = await gasPrice().then(
        (price) => settlementCost(price, coinUsd),
        () => known,
      );
      this.#costs.set(chain, cost);
      return cost !== known;
    });
    const changed = (await Promise.all(asked)).includes(true);
    if ((await this.#readDay()) || changed) onChange();
  }

  /** The least price that is offered on any network. */
  get floor(): Money {
    const [least] = [...this.#options.gasPrices.keys()].map((chain) => this.#floor(chain)).sort(byAmount);
    return least ?? this.#options.minPrice;
  }

  /** What a settlement costs there now. */
  costOf(chain: number | string): Money {
    return this.#cost(chain);
  }

  /** Whether the host sends something more for this tenant today. */
  hasBudget(tenant: string | undefined, chain: number | string): boolean {
    return tenant === undefined || this.#cost(chain) === ZERO || !this.#isUsedUp(tenant);
  }

  #cost(chain: number | string): Money {
    return this.#costs.get(chain) ?? ZERO;
  }

  #floor(chain: number | string): Money {
    const { minPrice } = this.#options;
    const cost = this.#cost(chain);
    if (cost > minPrice) return cost;
    return minPrice;
  }

  /**
   * What the operator sells itself is its own to price.
   * @param transactions that the host sends for a payment: none where a facilitator elsewhere settles
   */
  mayOffer({ kind, amount, tenant }: Terms, chain: number | string, transactions = 1): boolean {
    if (kind === 'operation' || tenant === undefined) return true;
    if (transactions === 0) return amount >= this.#options.minPrice;
    return amount >= this.#floor(chain) * BigInt(transactions) && !(this.#cost(chain) > ZERO && this.#isUsedUp(tenant));
  }

  /** A settlement for this tenant goes to the network; one that fails costs, too. @param transactions as above */
  async note(tenant: string | null, chain: number | string, transactions = 1): Promise<void> {
    if (tenant === null || this.#cost(chain) === ZERO || transactions === 0) return;
    await this.#readDay();
    const wasUsedUp = this.#isUsedUp(tenant);
    const cost = micro(this.#cost(chain) * BigInt(transactions));
    this.#spent.set(tenant, add(this.#spent.get(tenant) ?? ZERO, cost));
    await this.#store.add(this.#day, tenant, cost);
    if (!wasUsedUp && this.#isUsedUp(tenant)) this.#options.onChange();
  }

  /** Today's, the dearest first. */
  async use(): Promise<GasUse[]> {
    await this.#readDay();
    const { budget } = this.#options;
    return [...this.#spent]
      .map(([tenant, spent]) => ({ tenant, spent, budget, isUsedUp: this.#isUsedUp(tenant) }))
      .sort((a, b) => Number(b.spent - a.spent))
      .slice(0, 20);
  }

  #isUsedUp(tenant: string): boolean {
    return (
      (this.#spent.get(tenant) ?? 0n) >= this.#options.budget && [...this.#costs.values()].some((cost) => cost > ZERO)
    );
  }

  async #readDay(): Promise<boolean> {
    const day = new Date(this.#options.clock.now()).toISOString().slice(0, 10);
    if (day === this.#day) return false;
    this.#spent = await this.#store.of(day);
    this.#day = day;
    return true;
  }
}
