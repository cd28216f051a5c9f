/** What a call costs: the price, or what the handler of a metered route says in `x-charge`, at most the price. */
import { type Money, parseUsd } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';

/**
 * @param said value of the handler's `x-charge`, or null; a missing one means the full price
 * @param limit the price, or the caller's own lower limit
 * @returns the charge; more than the limit is clamped to it
 * @throws Problem `upstream_failed` for anything but a decimal amount (negative, NaN, exponents, several values)
 */
export function chargeOf(mode: 'fixed' | 'metered', said: string | null, limit: Money): Money {
  if (mode === 'fixed' || said === null) return limit;
  let charge: Money;
  try {
    charge = parseUsd(said.trim());
  } catch (error) {
    throw new Problem(
      'upstream_failed',
      'The handler named a charge that is not an amount in USD. Nothing was charged.',
      {
        cause: error,
      },
    );
  }
  return charge < limit ? charge : limit;
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
