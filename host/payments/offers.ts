/** What is for sale and how it can be paid: asks every rail for its offer, and remembers the answers per set of terms. */
import type { Money } from '../shared/money.ts';
import { type PreparedOffers, prepareOffers } from './challenge.ts';
import { methodOf } from './methods/index.ts';
import type { Rail } from './methods/method.ts';
import { type Terms, termsToText } from './terms.ts';
import type { Address, OfferInfo } from './types.ts';

/** Sets of terms kept; a host has a few per tenant. */
const CACHE_SIZE = 5_000;

export class OfferBook {
  readonly #rails: readonly Rail[];
  readonly #owes: (tenant: string) => boolean;
  readonly #cache = new Map<string, PreparedOffers>();
  #edition = 0;

  /** @param owes whether a tenant has debts: what it sells is collected then */
  constructor(rails: readonly Rail[], owes: (tenant: string) => boolean) {
    this.#rails = rails;
    this.#owes = owes;
  }

  /** Offers that were prepared under another number may be others now. */
  get edition(): number {
    return this.#edition;
  }

  /** Debts, or what a rail offers, have changed. */
  changed(): void {
    this.#edition += 1;
    this.#cache.clear();
  }

  prepare(asked: Terms): PreparedOffers {
    const terms = asked.tenant !== undefined && this.#owes(asked.tenant) ? { ...asked, collected: true } : asked;
    const key = termsToText(terms);
    const known = this.#cache.get(key);
    if (known) return known;
    const offers = this.#rails.map((rail) => rail.offer(terms)).filter((offer) => offer !== undefined);
    const prepared = prepareOffers(terms, offers);
    if (this.#cache.size >= CACHE_SIZE) this.#cache.delete(this.#cache.keys().next().value ?? '');
    this.#cache.set(key, prepared);
    return prepared;
  }

  /** The same as discovery documents print it. */
  describe(
    amount: Money,
    options: {
      mode: 'fixed' | 'metered' | 'proof';
      payTo?: Address;
      payToSolana?: string;
      description?: string;
      perEvent?: string;
    },
  ): OfferInfo[] {
    const { mode, payTo, payToSolana, description, perEvent } = options;
    const terms: Terms = {
      kind: mode === 'proof' ? 'operation' : 'route',
      name: '',
      scope: '',
      slug: undefined,
      tenant: undefined,
      amount,
      mode: mode === 'metered' ? 'metered' : 'fixed',
      slow: false,
      ...(perEvent === undefined ? {} : { live: true, perEvent }),
      payTo,
      ...(payToSolana === undefined ? {} : { payToSolana }),
      feeBps: 0,
      description: description ?? '',
      sku: undefined,
      pricingVersion: undefined,
    };
    const text = description === undefined ? {} : { description };
    return this.prepare(terms).offers.map((offer) => {
      const { intent, method, currency } = methodOf(offer).describe(offer);
      return { intent, method, amount: (offer.authorizes ?? amount).toString(), currency, ...text };
    });
  }
}
