/**
 * What wallets have promised for work that is under way. Each payment alone is covered by its wallet when it is verified;
 * many at once may not be, and handlers would work for all of them while the chain takes one.
 */
import { formatUsd, type Money, micro } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';

export class Promised {
  /** Of a wallet and an asset, by credential, in the order in which they came. */
  readonly #amounts = new Map<string, Map<string, Money>>();
  readonly #walletOf = new Map<string, string>();

  /**
   * Notes a payment until `forget`.
   * @param wallet of one asset
   * @param held what it holds, or held a moment ago; asked only where it has promised more than this payment
   * @throws Problem `payment_invalid` where the earlier ones leave too little
   */
  async add(credential: string, wallet: string, amount: Money, held: () => Promise<bigint>): Promise<void> {
    const amounts = this.#amounts.get(wallet) ?? new Map<string, Money>();
    this.#amounts.set(wallet, amounts.set(credential, amount));
    this.#walletOf.set(credential, wallet);
    if (amounts.size === 1) return;
    try {
      const holds = await held();
      // After the balance: what has left the list meanwhile may have left the wallet, too.
      const earlier = sumBefore(amounts, credential);
      if (earlier === 0n || earlier + amount <= holds) return;
      throw new Problem(
        'payment_invalid',
        `The wallet holds ${formatUsd(micro(holds))} USD, of which ${formatUsd(micro(earlier))} are promised to calls that are under way; wait for them, or send it more. Nothing was charged.`,
      );
    } catch (error) {
      this.forget(credential);
      throw error;
    }
  }

  /** Before its money moves, or when nothing will. */
  forget(credential: string): void {
    const wallet = this.#walletOf.get(credential);
    if (wallet === undefined) return;
    this.#walletOf.delete(credential);
    const amounts = this.#amounts.get(wallet);
    amounts?.delete(credential);
    if (amounts?.size === 0) this.#amounts.delete(wallet);
  }
}

function sumBefore(amounts: ReadonlyMap<string, Money>, credential: string): bigint {
  let sum = 0n;
  for (const [other, amount] of amounts) {
    if (other === credential) break;
    sum += amount;
  }
  return sum;
}
