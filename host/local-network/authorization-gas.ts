/**
 * Gas of a key authorization, which anvil 1.7.1 takes when a transaction is sent, and leaves out of its simulations.
 * Tempo's nodes count it in both, so payers sign enough of it, and what has too little does not pass for a payment.
 */

/** A row of storage that is new (TIP-1000). */
const ROW = 250_000n;
/** Signature, reads, events, and per rule what is done beside its rows; rounded up. */
const BASE = 40_000n;
const RULE = 7_000n;

/** @param transaction of a simulation: anything at all. @returns 0 where it brings no key authorization */
export function authorizationGas(transaction: unknown): bigint {
  const { keyAuthorization } = Object(transaction) as { keyAuthorization?: unknown };
  if (typeof keyAuthorization !== 'object' || keyAuthorization === null) return 0n;
  const { limits, allowedCalls } = keyAuthorization as { limits?: unknown; allowedCalls?: unknown };
  const targets = items(allowedCalls);
  const selectors = targets.flatMap((target) => items(Object(target).selectorRules));
  const recipients = selectors.flatMap((selector) => items(Object(selector).recipients));
  const [targetCount, selectorCount, recipientCount] = [targets.length, selectors.length, recipients.length];
  // The key, each limit, whether there are rules for calls, and the rules with their places in lists.
  const rows =
    1 + items(limits).length + (allowedCalls == null ? 0 : 2) + 3 * (targetCount + selectorCount) + 2 * recipientCount;
  return BASE + BigInt(rows) * ROW + BigInt(targetCount + selectorCount + recipientCount) * RULE;
}

function items(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
