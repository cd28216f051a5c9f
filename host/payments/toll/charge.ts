/** What a call costs: the price, or what the handler of a metered route says in `x-charge`, at most the price. */
import { formatUsd, type Money, parseUsd } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';

/**
 * @param said value of the handler's `x-charge`, or null; a missing one means the full price
 * @param held the most that the payment covers; a charge above it is clamped to it
 * @param limit the caller's own limit, where it is lower
 * @throws Problem `conflict` for a charge above the caller's own limit: the answer is withheld, or the payer would set the price
 * @throws Problem `upstream_failed` for anything but a decimal amount (negative, NaN, exponents, several values)
 */
export function chargeOf(mode: 'fixed' | 'metered', said: string | null, held: Money, limit: Money = held): Money {
  if (mode === 'fixed') return held;
  let charge: Money = held;
  try {
    if (said !== null) charge = parseUsd(said.trim());
  } catch (error) {
    throw new Problem(
      'upstream_failed',
      'The handler named a charge that is not an amount in USD. Nothing was charged.',
      {
        cause: error,
      },
    );
  }
  const due = charge < held ? charge : held;
  if (due > limit)
    throw new Problem(
      'conflict',
      `This costs ${formatUsd(due)} USD, more than x-max-price allows. Nothing was charged; send a higher x-max-price.`,
    );
  return due;
}

/**
 * The caller's `x-max-price`: the most one call may cost, USD.
 * @throws Problem `bad_request` when it is no amount
 */
export function maxPrice(headers: Headers): Money | undefined {
  const text = headers.get('x-max-price');
  if (text === null) return undefined;
  try {
    return parseUsd(text.trim());
  } catch (error) {
    throw new Problem('bad_request', 'x-max-price takes a decimal amount in USD such as 0.05.', { cause: error });
  }
}
