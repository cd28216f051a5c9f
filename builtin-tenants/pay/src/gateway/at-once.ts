/**
 * `X-Pay-Up-To`: an account pays a call from credit at once, up to what it says, instead of asking for the price first.
 * The price of the very same call is remembered for as long as a challenge with it would be good.
 */
import { parseUsd } from '../../../kit/usd.ts';
import type { Account, OpenedAccount } from '../accounts/accounts.ts';
import { newId } from '../accounts/tokens.ts';
import { Problem } from '../problem.ts';
import { type Asked, askPrice } from './asking.ts';
import { type Call, type GatewayParts, idempotencyKey, toCaller } from './call.ts';
import { type CreditRequest, LIFE_MS } from './credit-challenge.ts';
import { payFromCredit } from './from-credit.ts';
import { AskedAgain } from './paid-work.ts';

const HEADER = 'x-pay-up-to';
const MOST_REMEMBERED = 1_000;

/** What the call may cost, micro-USD. @throws Problem for what is no amount */
export function upTo(headers: Headers): number | undefined {
  const said = headers.get(HEADER);
  if (said === null) return undefined;
  const most = parseUsd(said);
  if (most === undefined) throw new Problem('invalid_field', 'X-Pay-Up-To: an amount in USD such as 0.05 is expected.');
  return most;
}

export class AtOnce {
  /** By account and request: nobody pays by a price that was told to another. The oldest first. */
  readonly #prices = new Map<string, { asked: Asked; until: number }>();

  /**
   * @param request what is paid, once its price is known
   * @returns `dear` where the price is more than that: nothing was charged
   * @throws Problem
   */
  async pay(
    parts: GatewayParts,
    call: Call,
    account: Account | OpenedAccount,
    most: number,
    request: (asked: Asked, requestId: string) => CreditRequest,
  ): Promise<{ answer: Response } | { dear: Asked }> {
    const idempotency = idempotencyKey(call, account.id);
    if (idempotency === undefined)
      throw new Problem('invalid_field', 'X-Pay-Up-To needs an Idempotency-Key, by which a repetition costs nothing.');
    const name = `${account.id} ${call.hash}`;
    const pay = (asked: Asked, requestId: string) =>
      payFromCredit(parts, call, account, { request: request(asked, requestId), keys: [idempotency] });
    const requestId = newId('req');
    const known = this.#known(name);
    if (known && known.price.amount <= most) {
      try {
        return { answer: await pay(known, requestId) };
      } catch (error) {
        if (!(error instanceof AskedAgain)) throw error;
        this.#prices.delete(name);
      }
    }
    const kept = await parts.calls.kept(idempotency, call.hash);
    if (kept) return { answer: kept };
    const asked = await askPrice(parts, call, account.id, requestId);
    if ('answer' in asked) return { answer: toCaller(asked.answer, requestId) };
    this.#remember(name, asked);
    if (asked.price.amount > most) return { dear: asked };
    return { answer: await pay(asked, requestId) };
  }

  #known(name: string): Asked | undefined {
    const found = this.#prices.get(name);
    return found && Date.now() < found.until ? found.asked : undefined;
  }

  #remember(name: string, asked: Asked): void {
    this.#prices.delete(name);
    this.#prices.set(name, { asked, until: Date.now() + LIFE_MS });
    const [oldest] = this.#prices.keys();
    if (this.#prices.size > MOST_REMEMBERED && oldest !== undefined) this.#prices.delete(oldest);
  }
}
