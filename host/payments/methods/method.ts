/** What every way of paying can do. Rails move money on chains; they keep no books. */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { Money } from '../../shared/money.ts';
import type { Offer, SettleResult, Terms, Verified } from '../terms.ts';
import type { RailName } from '../types.ts';
import type { Presented } from './credential.ts';

export interface Rail {
  name: RailName;
  /** Undefined where this rail cannot sell these terms. */
  offer(terms: Terms): Offer | undefined;
  /**
   * Checks signature, amount, recipient, balance and time without moving money. The caller has checked that the
   * credential is for `offer`.
   * @throws Problem `payment_invalid`
   */
  verify(presented: Presented, offer: Offer): Promise<Verified>;
  /** Takes `amount` (at most what was authorized). Never throws: what is not known is `unknown`. */
  settle(payment: PaymentRow, amount: Money): Promise<SettleResult>;
  /** Asks the chain what became of a settlement, and tries it again where that is safe. */
  reconcile(payment: PaymentRow, amount: Money): Promise<SettleResult>;
}
