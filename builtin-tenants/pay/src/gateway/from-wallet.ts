/** Calls that a wallet pays: held by the host's `PAYMENTS`, and taken once the answer is stored. */

import { sha256Hex } from '../accounts/tokens.ts';
import type { Price } from '../catalog.ts';
import { Problem } from '../problem.ts';
import { networkOf } from '../rate-limit.ts';
import { askPrice, wanted } from './asking.ts';
import { bearer, type Call, type GatewayParts, idempotencyKey, toCaller } from './call.ts';
import type { CallClaim } from './calls.ts';
import { join, work } from './paid-work.ts';
import type { HeldPayment } from './payments.ts';

export async function payFromWallet(parts: GatewayParts, call: Call): Promise<Response> {
  const { calls, payments, db } = parts;
  const { original } = call;
  const account = await bearer(parts, call);
  const presented = original.get('payment-signature') ?? original.get('x-payment') ?? original.get('authorization');
  const by = shownBy(original, presented ?? '');
  const fingerprint = await sha256Hex((presented ?? '') + by);
  const begun = await calls.begin(`wallet:${fingerprint}`, call.hash, `req_${fingerprint.slice(0, 20)}`);
  if ('kept' in begun) return begun.kept;
  const { claim } = begun;
  let held: HeldPayment | undefined;
  let price: Price;
  try {
    // The price may have changed, and the request may have become unacceptable: both are known before money is held.
    const priced = await askPrice(parts, call, account?.id, claim.requestId);
    if ('answer' in priced) {
      await calls.forget(claim);
      return toCaller(priced.answer, claim.requestId);
    }
    price = priced.price;
    if (price.creditOnly) throw new Problem('payment_invalid', 'This is paid from credit only. Nothing was charged.');
    const verified = await payments.verify(call.original, wanted(call, price));
    if ('answer' in verified) {
      await calls.forget(claim);
      return verified.answer;
    }
    const { hold, taken } = verified.held;
    // However the credential is spelled and whatever else is sent with it: one payment is one call.
    const same = await join(parts, claim, `payment:${hold}`, call.hash + by);
    if (same.kept) return same.kept;
    if (taken) throw new Problem('conflict', 'This payment was used, and its answer is no longer kept.');
    held = verified.held;
    const idempotency = idempotencyKey(call, held.payer);
    const joined = idempotency ? await join(parts, claim, idempotency, call.hash) : {};
    if (joined.abandonedHold && joined.abandonedHold !== hold) await payments.release(joined.abandonedHold);
    if (joined.kept) {
      await payments.release(held.hold);
      return joined.kept;
    }
    await db.batch(calls.noteHold(claim, held.hold, price.amount));
  } catch (error) {
    if (held) await payments.release(held.hold);
    await calls.forget(claim);
    throw error;
  }
  return workForWallet(parts, call, claim, held, price, account?.id ?? held.payer);
}

/**
 * By what a payer is known again whose credential everybody can read on the chain: the key of the call, or its network.
 * Empty for all others. A payment of x402 v1 says nothing of the 402 that it pays.
 */
function shownBy(original: Headers, presented: string): string {
  let version: unknown;
  try {
    ({ x402Version: version } = JSON.parse(atob(presented)));
  } catch {
    // Of MPP.
  }
  if (version !== 1) return '';
  const key = original.get('idempotency-key');
  return key === null ? ` network ${networkOf(original.get('cf-connecting-ip') ?? undefined).caller}` : ` key ${key}`;
}

function workForWallet(
  parts: GatewayParts,
  call: Call,
  claim: CallClaim,
  { hold }: HeldPayment,
  price: Price,
  account: string,
): Promise<Response> {
  const { calls, payments, db } = parts;
  return work(
    parts,
    call,
    claim,
    { account, usage: price.usage },
    {
      capture: async (answer) => {
        await db.batch(calls.capturing(claim, answer));
        const receipt = await payments.capture(hold, price.amount);
        await db.batch(
          calls.done(claim, { ...answer, headers: [...answer.headers, ...receipt] as [string, string][] }),
        );
        return receipt;
      },
      release: () => payments.release(hold),
    },
  );
}
