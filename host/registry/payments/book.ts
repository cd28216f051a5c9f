/**
 * Double-entry bookkeeping: pure functions that say which lines a step of a payment writes. Accounts:
 * `wallet:<address>` is money on a chain, outside the host's keeping; `claim:...` is money that the host keeps (or has
 * been promised by a channel) and whose it is. The lines of a transaction sum to zero; all claims together are what the
 * host's collecting wallets hold, less what channels still owe.
 */

import { type Money, share, subtract, ZERO } from '../../shared/money.ts';
import type { PaymentRow } from './schema.ts';

export interface Entry {
  txn: string;
  account: string;
  asset: string;
  amount: Money;
  kind: string;
  payment: string | null;
  reference: string | null;
}

export const wallet = (address: string): string => `wallet:${address}`;
export const hold = (payment: string): string => `claim:hold:${payment}`;
export const payout = (address: string): string => `claim:payout:${address}`;
export const refund = (address: string): string => `claim:refund:${address}`;
export const channel = (id: string): string => `claim:channel:${id}`;
export const FEE = 'claim:fee';

interface Transaction {
  id: string;
  kind: string;
  asset: string;
  payment: string | null;
  reference: string | null;
  moves: [account: string, amount: Money][];
}

/** @throws Error when the moves do not sum to zero: a defect, never a caller's fault */
export function entries({ id, kind, asset, payment, reference, moves }: Transaction): Entry[] {
  const sums = new Map<string, bigint>();
  for (const [account, amount] of moves) sums.set(account, (sums.get(account) ?? 0n) + amount);
  let total = 0n;
  for (const amount of sums.values()) total += amount;
  if (total !== 0n) throw new Error(`ledger transaction ${id} does not balance`);
  return [...sums]
    .filter(([, amount]) => amount !== 0n)
    .map(([account, amount]) => ({ txn: id, account, asset, amount: amount as Money, kind, payment, reference }));
}

const minus = (amount: Money): Money => subtract(ZERO, amount);

/** How a charge is divided: the operator's share rounds down, so the parts always sum to the whole. */
export function divide(charged: Money, feeBps: number): { payee: Money; fee: Money } {
  const fee = share(charged, feeBps);
  return { payee: subtract(charged, fee), fee };
}

/** The chain moved `amount` from the payer to the payment's recipient. */
export function settledOnChain(payment: PaymentRow, amount: Money, reference: string): Entry[] {
  const to = payment.custody === 'direct' ? wallet(payment.recipient) : hold(payment.id);
  return entries({
    id: `${payment.id}:settle`,
    kind: payment.kind === 'operation' ? 'operation' : 'charge',
    asset: payment.asset,
    payment: payment.id,
    reference,
    moves: [
      [wallet(payment.payer), minus(amount)],
      [to, amount],
    ],
  });
}

/** The work is done and cost `charged`: what is held (or promised by the channel) is divided. */
export function captured(payment: PaymentRow, authorized: Money, charged: Money): Entry[] {
  const { payee, fee } = divide(charged, payment.feeBps);
  const source: [string, Money] =
    payment.custody === 'channel'
      ? [channel(payment.channel ?? ''), minus(charged)]
      : [hold(payment.id), minus(authorized)];
  const back: [string, Money][] =
    payment.custody === 'channel' ? [] : [[refund(payment.payer), subtract(authorized, charged)]];
  return entries({
    id: `${payment.id}:capture`,
    kind: 'capture',
    asset: payment.asset,
    payment: payment.id,
    reference: null,
    moves: [source, [payout(payment.payTo), payee], [FEE, fee], ...back],
  });
}

/**
 * Work that was lost after its capture: payee's and operator's parts become the payer's again.
 * @param notTaken what of it is still in the channel, which no longer owes it; the rest has to be sent back
 */
export function returned(payment: PaymentRow, charged: Money, notTaken: Money): Entry[] {
  const { payee, fee } = divide(charged, payment.feeBps);
  return entries({
    id: `${payment.id}:return`,
    kind: 'return',
    asset: payment.asset,
    payment: payment.id,
    reference: null,
    moves: [
      [payout(payment.payTo), minus(payee)],
      [FEE, minus(fee)],
      [channel(payment.channel ?? ''), notTaken],
      [refund(payment.payer), subtract(charged, notTaken)],
    ],
  });
}

/** The chain moved what a channel had captured to the host's wallet. */
export function channelSettled(input: {
  channel: string;
  payer: string;
  asset: string;
  amount: Money;
  total: Money;
  reference: string;
}): Entry[] {
  return entries({
    id: `${input.channel}:settle:${input.total}`,
    kind: 'channel',
    asset: input.asset,
    payment: null,
    reference: input.reference,
    moves: [
      [wallet(input.payer), minus(input.amount)],
      [channel(input.channel), input.amount],
    ],
  });
}

/** Of what a tenant was to be paid, what it owes to a payer: from here on the host holds it for that payer. */
export function heldBack(
  debt: { id: string; payment: string; asset: string; recipient: string },
  from: { id: string; recipient: string },
  amount: Money,
): Entry[] {
  return entries({
    id: `${debt.id}:held:${from.id}`,
    kind: 'debt',
    asset: debt.asset,
    payment: debt.payment,
    reference: null,
    moves: [
      [payout(from.recipient), minus(amount)],
      [refund(debt.recipient), amount],
    ],
  });
}

/** Money that the host sent; `held` is false for refunds straight out of the recipient's own wallet. */
export function sent(input: {
  id: string;
  kind: 'payout' | 'fee' | 'refund';
  payment: string;
  asset: string;
  source: string;
  recipient: string;
  amount: Money;
  held: boolean;
  reference: string;
}): Entry[] {
  const claim = { payout: payout(input.recipient), fee: FEE, refund: refund(input.recipient) }[input.kind];
  return entries({
    id: `${input.id}:sent`,
    kind: input.kind,
    asset: input.asset,
    payment: input.payment,
    reference: input.reference,
    moves: [
      [input.held ? claim : wallet(input.source), minus(input.amount)],
      [wallet(input.recipient), input.amount],
    ],
  });
}
