/**
 * Whether a payment that is shown once more is shown for the very thing that it paid for. An `Again` can be made here
 * only, by that comparison, and nothing answers from a stored payment without one.
 */
import { createHash } from 'node:crypto';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { methodOf } from '../methods/index.ts';
import type { Presented } from '../methods/method.ts';
import { type Terms, termsFromText } from '../terms.ts';

/** Where a payment is shown, and with what. */
export interface Place {
  /** Digest of the kind of address, method, path, query and body. */
  digest: string;
  /** Whether the body is part of it; one that streams counts by its declared length alone. */
  whole: boolean;
}

/** @param where all that tells this place from others, beside what the terms say */
export function placeOf(where: readonly string[], body: Uint8Array | { declared: number | undefined }): Place {
  const whole = body instanceof Uint8Array;
  const hash = createHash('sha256').update(JSON.stringify([...where, whole ? 'whole' : `unread ${body.declared}`]));
  if (whole) hash.update('\n').update(body);
  return { digest: hash.digest('hex'), whole };
}

/** As it stands with a payment. @param shownBy where others than its payer can show it */
export function noteOf({ digest }: Place, shownBy: string | undefined): string {
  return shownBy === undefined ? digest : `${digest} ${shownDigest(digest, shownBy)}`;
}

/**
 * Whether a payment that everybody can read on the chain is shown as it was the first time: by its key, or from its
 * network. Payments of former versions say nothing of that.
 */
export function isShownBySame({ place }: PaymentRow, shownBy: string): boolean {
  const [digest = '', former] = (place ?? '').split(' ');
  return former === undefined || former === shownDigest(digest, shownBy);
}

function shownDigest(digest: string, shownBy: string): string {
  return createHash('sha256').update(`${digest} ${shownBy}`).digest('hex');
}

export class Again {
  /** Makes the type nominal: a row that looks like it is not one. */
  readonly #row: PaymentRow;

  private constructor(row: PaymentRow) {
    this.#row = row;
  }

  /**
   * A paid route or an operation may have another price by now: who paid the former one is not to pay again. The terms
   * of a tenant's own challenge, and of a row from before places were noted, are a part of what was paid for.
   * @returns undefined when the payment was for something else, or at another place
   */
  static of(row: PaymentRow, terms: Terms, place: Place): Again | undefined {
    const atPlace = row.scope === terms.scope && (row.place === null || row.place.split(' ', 1)[0] === place.digest);
    const same = atPlace && ((row.place !== null && row.kind !== 'binding') || sameTerms(row, terms));
    return same ? new Again(row) : undefined;
  }

  get row(): PaymentRow {
    return this.#row;
  }

  /** The same payment as it is by now. @returns undefined when its credential was begun anew, perhaps elsewhere */
  as(row: PaymentRow | undefined): Again | undefined {
    return row?.id === this.#row.id && row.attempts === this.#row.attempts ? new Again(row) : undefined;
  }
}

/** Whether a payment was begun with this very credential. */
export function sameCredential(row: PaymentRow, presented: Presented): boolean {
  const former = row.place === null ? methodOf(presented).formerHash?.(presented) : undefined;
  return row.credentialHash === (former ?? presented.hash);
}

/** Whether a stored payment was made on these terms. */
export function sameTerms(row: PaymentRow, terms: Terms): boolean {
  return canonical(termsFromText(row.terms)) === canonical(terms);
}

/** What a payer agreed to. The description, the operator's share and how it is settled are not part of it. */
function canonical({ kind, name, scope, slug, tenant, amount, mode, payTo, sku, pricingVersion, meta }: Terms): string {
  // The token of a tenant's own challenge says what the rest of `meta` says.
  const { token: _token, ...said } = meta ?? {};
  const entries = Object.entries(said).sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([
    kind,
    name,
    scope,
    slug ?? null,
    tenant ?? null,
    amount.toString(),
    mode,
    payTo?.toLowerCase() ?? null,
    sku ?? null,
    pricingVersion ?? null,
    entries,
  ]);
}
