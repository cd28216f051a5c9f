/** The unpaid forward, by which a price is learned. */
import type { Price } from '../catalog.ts';
import { askBoth, known } from '../database/questions.ts';
import { Problem } from '../problem.ts';
import type { Call, GatewayParts } from './call.ts';
import { callOrigin, readPrice } from './origin.ts';
import type { WantedPayment } from './payments.ts';

/** Instead of an account, and of usage. */
const NONE = 'none';

/** A price, and what the account that asked can spend; null where none did. */
export interface Asked {
  price: Price;
  /** How the service says it is called. */
  shape: object | undefined;
  balance: number | null;
}

/** A price, or an answer that is free. */
export async function askPrice(
  parts: GatewayParts,
  call: Call,
  account: string | undefined,
  requestId: string,
): Promise<Asked | { answer: Response }> {
  const { catalog, db, ledger } = parts;
  const answer = await callOrigin({ ...call, account: account ?? NONE, requestId, usage: NONE }, parts);
  const read = await readPrice(answer);
  if ('answer' in read) return read;
  const { serviceSlug, usage, shape } = read.asked;
  const [price, balance] = await askBoth(
    db,
    catalog.priceOf(serviceSlug, usage),
    account === undefined ? known(null) : ledger.availableTo(account),
  );
  // A service may charge for another one of the same origin, not for anybody's.
  if (!price || price.service.origin !== call.service.origin) {
    throw new Problem(
      'upstream_failed',
      'The origin requested a price that is not in its catalog. Nothing was charged.',
    );
  }
  return { price, balance, shape };
}

export function wanted(call: Call, price: Price, shape?: object): WantedPayment {
  const { method, hash, resource } = call;
  return {
    amount: price.amount,
    description: price.description,
    bind: hash,
    resource,
    x402v1: true,
    call: { method, ...shape },
  };
}
