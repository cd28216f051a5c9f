/**
 * What a live stream has cost so far. The host notes it before anything is passed on that it pays for: whoever vanishes
 * after that has paid. Each second of audio that has begun is charged, over all channels.
 */
import { formatUsd, type MicroUsd, priceOfAudio } from '../money.ts';
import type { PaymentsBinding } from '../settings.ts';

/** The host says that nothing more is charged: the stream has to end. */
export class MeterRefused extends Error {}

export class Meter {
  readonly #payments: PaymentsBinding | undefined;
  readonly #payment: { payment: string; attempt: number } | undefined;
  readonly #perSecond: MicroUsd;
  #seconds = 0;

  /** @param payments undefined: nothing is charged here, as where the tenant stands alone */
  constructor(payments: PaymentsBinding | undefined, { headers }: Request, perSecond: MicroUsd) {
    this.#payments = payments;
    this.#perSecond = perSecond;
    const payment = headers.get('x-payment-id');
    this.#payment = payment === null ? undefined : { payment, attempt: Number(headers.get('x-payment-attempt')) };
  }

  /** Whether what is heard can be charged. */
  get works(): boolean {
    return this.#payments === undefined || this.#payment !== undefined;
  }

  /** Seconds that are charged. */
  get seconds(): number {
    return this.#seconds;
  }

  get charge(): string {
    return formatUsd(this.#seconds === 0 ? 0 : priceOfAudio(this.#seconds * 1000, this.#perSecond));
  }

  /** Resolves when all that was heard is charged. @throws MeterRefused; nothing of it may be passed on */
  async heard(ms: number): Promise<void> {
    const seconds = Math.ceil(ms / 1000);
    if (seconds <= this.#seconds) return;
    if (this.#payments !== undefined) {
      const total = formatUsd(priceOfAudio(seconds * 1000, this.#perSecond));
      const answer = await this.#payments.fetch('http://payments/meter', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...this.#payment, total }),
      });
      if (!answer.ok) throw new MeterRefused(await answer.text());
      await answer.body?.cancel();
    }
    this.#seconds = seconds;
  }
}
