/** Calls that are paid from prepaid credit: held in the ledger, then taken together with the answer that is kept. */

import { formatUsd } from '../../../kit/usd.ts';
import type { Account, OpenedAccount } from '../accounts/accounts.ts';
import { newId } from '../accounts/tokens.ts';
import type { Statement } from '../environment.ts';
import { Problem } from '../problem.ts';
import { type Call, type GatewayParts, idempotencyKey } from './call.ts';
import type { CallClaim } from './calls.ts';
import type { CreditRequest } from './credit-challenge.ts';
import { join, work } from './paid-work.ts';
import { CaptureFailed } from './payments.ts';

/**
 * @param account whose credit it is, and by which credential, where it was one
 * @param paid `keys`: stand for this call, at least one
 */
export async function payFromCredit(
  parts: GatewayParts,
  call: Call,
  account: Account | OpenedAccount,
  { request, keys }: { request: CreditRequest; keys: string[] },
): Promise<Response> {
  const { calls, ledger } = parts;
  if (request.requestHash !== call.hash) {
    throw new Problem('payment_invalid', 'The challenge was for another request. Nothing was charged.');
  }
  const hold = newId('hld');
  const movement = {
    account: account.id,
    service: request.serviceSlug,
    amount: Number(request.amount),
    usage: JSON.stringify(request.usage),
  };
  // Noted in the same transaction: whoever takes over after a crash finds what was held.
  const take = async (claim: CallClaim, note: Statement[]): Promise<void> => {
    const credential = 'credentialId' in account ? account.credentialId : undefined;
    const held = await ledger.hold(hold, { ...movement, credential, requestId: claim.requestId }, note);
    if (held.status === 'capped') throw capped(request);
    if (held.status === 'insufficient_credit') {
      parts.topUp(account.id);
      throw notCovered(request, held.balance);
    }
    if (held.status !== 'held') throw new Error(`unexpected hold: ${held.status}`);
  };
  const fresh: CallClaim = { keys, requestId: request.requestId, abandonedHold: null };
  let begun: { claim: CallClaim } | { kept: Response };
  try {
    await take(fresh, calls.beginHeld(fresh, call.hash, hold, movement.amount));
    begun = { claim: fresh };
  } catch (error) {
    if (error instanceof Problem) throw error;
    // Mostly because the call is known: step by step it is seen how far it had come.
    begun = await beginAgain(parts, fresh, call.hash, (claim) =>
      take(claim, calls.noteHold(claim, hold, movement.amount)),
    );
  }
  if ('kept' in begun) return begun.kept;
  const { claim } = begun;
  return work(
    parts,
    call,
    claim,
    { account: account.id, usage: request.usage },
    {
      capture: async (answer) => {
        // One transaction: the money is taken and the answer kept, or neither.
        if (!(await ledger.capture(hold, calls.done(claim, answer), movement))) {
          throw new CaptureFailed(409, 'the hold was given back meanwhile');
        }
        return new Headers();
      },
      release: async () => {
        await ledger.release(hold);
      },
    },
  );
}

/** Of one that is paid by its own id, and of its Idempotency-Key where it has one. */
export function creditKeys(call: Call, account: Account, id: string): string[] {
  const idempotency = idempotencyKey(call, account.id);
  return [`credit:${id}:${account.id}`, ...(idempotency ? [idempotency] : [])];
}

/** Begins a call that may be known under any of its keys, gives back what an attempt before held, and holds anew. */
async function beginAgain(
  parts: GatewayParts,
  { keys: [key = '', idempotency], requestId }: CallClaim,
  hash: string,
  take: (claim: CallClaim) => Promise<void>,
): Promise<{ claim: CallClaim } | { kept: Response }> {
  const { calls, ledger } = parts;
  const begun = await calls.begin(key, hash, requestId);
  if ('kept' in begun) return begun;
  const { claim } = begun;
  const abandoned = [claim.abandonedHold];
  if (idempotency) {
    const { kept, abandonedHold } = await join(parts, claim, idempotency, hash);
    if (kept) return { kept };
    abandoned.push(abandonedHold ?? null);
  }
  try {
    for (const left of abandoned) if (left) await ledger.release(left);
    await take(claim);
  } catch (error) {
    await calls.forget(claim);
    throw error;
  }
  return { claim };
}

function capped({ serviceSlug, usage, amount }: CreditRequest): Problem {
  const price = formatUsd(Number(amount));
  return new Problem(
    'spend_cap_reached',
    `This costs ${price} USD, more than is left of what this credential may spend today; that begins anew at 00:00 UTC. Nothing was charged.`,
    { serviceSlug, usage, priceMicroUsd: amount },
  );
}

function notCovered(request: CreditRequest, balance: number): Problem {
  const { serviceSlug, usage } = request;
  const [price, credit] = [formatUsd(Number(request.amount)), formatUsd(balance)];
  return new Problem(
    'insufficient_credit',
    `This costs ${price} USD and the credit is ${credit} USD; top up at ${request.creditPayUrl}.`,
    { serviceSlug, usage, priceMicroUsd: request.amount, balanceMicroUsd: String(balance), credit: request },
  );
}
