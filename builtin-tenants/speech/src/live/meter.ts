/**
 * What a live stream has cost so far. The host notes it before anything is passed on that it pays for: whoever vanishes
 * after that has paid.
 */
import { SpeechFailure } from '../failure.ts';
import { formatUsd, type MicroUsd } from '../money.ts';
import type { PaymentsBinding } from '../settings.ts';

/** The host says that nothing more is charged: the stream has to end. */
export class MeterRefused extends Error {}

export class Meter {
  readonly #payments: PaymentsBinding | undefined;
  readonly #payment: { payment: string; attempt: number } | undefined;
  #total: MicroUsd = 0;

  /** @param payments undefined: nothing is charged here, as where the tenant stands alone */
  constructor(payments: PaymentsBinding | undefined, { headers }: Request) {
    this.#payments = payments;
    const payment = headers.get('x-payment-id');
    this.#payment = payment === null ? undefined : { payment, attempt: Number(headers.get('x-payment-attempt')) };
    if (payments !== undefined && payment === null)
      throw new SpeechFailure('SERVICE_UNAVAILABLE', 'The host does not say who pays; try again.');
  }

  /** USD. */
  get charge(): string {
    return formatUsd(this.#total);
  }

  /** Resolves when the stream has been charged so much. @throws MeterRefused; nothing that it pays for may be passed on */
  async charged(total: MicroUsd): Promise<void> {
    if (total <= this.#total) return;
    if (this.#payments !== undefined) {
      const answer = await this.#payments.fetch('http://payments/meter', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...this.#payment, total: formatUsd(total) }),
      });
      if (!answer.ok) throw new MeterRefused(await answer.text());
      await answer.body?.cancel();
    }
    this.#total = total;
  }
}
