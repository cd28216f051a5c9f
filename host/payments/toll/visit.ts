/** One call of a paid route, with all that is known of it before it is paid. */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { EdgeContext } from '../../shared/contracts.ts';
import { formatUsd, type Money } from '../../shared/money.ts';
import type { ChallengeContext, PreparedOffers } from '../challenge.ts';
import type { PaidRoute, TollDeployment } from '../types.ts';

export interface Visit {
  request: Request;
  context: EdgeContext;
  deployment: TollDeployment;
  route: PaidRoute;
  prepared: PreparedOffers;
  challenge: ChallengeContext;
  /** Body, where it was read to be bound; otherwise it streams. */
  body: Uint8Array | undefined;
  limit: Money;
  /** What an answer of the handler is worth; undefined: what its status says. */
  judged?: ((answer: Response) => Promise<Response>) | undefined;
}

/** What only the toll may tell a handler of a paid call. */
export function handlerHeaders({ route, limit }: Visit, row: PaymentRow): Record<string, string> {
  return {
    'x-payer': row.payerDid,
    'x-payment-id': row.id,
    'x-payment-attempt': String(row.attempts),
    // Events are counted in what the handler sends.
    ...(route.perEvent === undefined ? {} : { 'accept-encoding': 'identity' }),
    ...(route.mode === 'metered' ? { 'x-max-price': formatUsd(limit) } : {}),
  };
}
