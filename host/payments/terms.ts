/**
 * The terms of one thing that is for sale, and what a rail makes of them.
 * Pure: terms come from a paid route, an operation or a tenant's own challenge; offers are what a 402 advertises.
 */
import type { Custody, PaymentKind } from '../registry/payments/schema.ts';
import { type Money, micro } from '../shared/money.ts';
import type { Address, Payer, RailName } from './types.ts';

export interface Terms {
  kind: PaymentKind;
  /** Operation name, or method and path of the route. */
  name: string;
  /** A credential is good for this scope only. */
  scope: string;
  slug: string | undefined;
  tenant: string | undefined;
  /** The price, or the most a metered call can cost. */
  amount: Money;
  mode: 'fixed' | 'metered';
  /** Work may outlast a signed transaction: settle first, refund if it fails. */
  slow: boolean;
  /** Charged while it goes on: what it may cost is with the host before anything is given. */
  live?: boolean;
  /** USD of each event of the stream that it is; `amount` is the most that all of them may cost. */
  perEvent?: string;
  /** Undefined: the operator's wallet on the rail's network. */
  payTo: Address | undefined;
  /** Address on Solana, where the payee has named one. */
  payToSolana?: string;
  /** The operator's share, 1/100 %. */
  feeBps: number;
  /** The host has to hold what this brings: the tenant has debts. Set by the book of offers. */
  collected?: boolean;
  description: string;
  sku: string | undefined;
  pricingVersion: number | undefined;
  /** What else a tenant's own challenge carries; authenticated, given back at verification. */
  meta?: Record<string, string>;
}

/** Terms as a payment row keeps them, so that recovery does not depend on the present deployment. */
export function termsToText(terms: Terms): string {
  return JSON.stringify({ ...terms, amount: terms.amount.toString() });
}

export function termsFromText(text: string): Terms {
  const stored = JSON.parse(text) as Terms & { amount: string };
  return {
    ...stored,
    slug: stored.slug ?? undefined,
    tenant: stored.tenant ?? undefined,
    payTo: stored.payTo ?? undefined,
    sku: stored.sku ?? undefined,
    pricingVersion: stored.pricingVersion ?? undefined,
    amount: micro(BigInt(stored.amount)),
  };
}

/** What a method asks for on the wire stands in its own kind of offer. */
export interface Offer {
  /** What a payment holds at first, where that is not the whole amount. */
  authorizes?: Money;
  /** The method of payment that made it, as `PaymentMethod.via`. */
  via: string;
  rail: RailName;
  /** CAIP-19-like `eip155:<chain>/<token>` in lower case, or `solana:<genesis>/<mint>`: the asset in the books. */
  asset: string;
  custody: Custody;
  /** Address that the chain pays, lower case. */
  recipient: Address;
  /** Who the money is for in the end, lower case. */
  payTo: Address;
}

/** What calls that are under way use up together, though there is enough of it for each alone. */
export interface Share {
  /** Names it, apart from that of any other payer. */
  of: string;
  amount: bigint;
  /** How much of it the chain has now. @throws Problem `payment_invalid` where the network does not answer */
  left(): Promise<bigint>;
  /** Who holds it, as in "The wallet holds 1.00 USD"; undefined: it is no money. */
  holds?: string;
}

/** A credential that can pay, checked in every way short of moving money. */
export interface Verified {
  payer: Payer;
  /** After this moment (ms, real time) the credential can no longer be settled. */
  settleBefore: number;
  /** What of it other calls could use up meanwhile; undefined: the money is set apart already. */
  shares?: readonly Share[];
  /** Session channel that backs it. */
  channel?: string;
  /** A voucher greater than the channel's last, to be noted together with the payment. */
  voucher?: { cumulative: Money; signature: string };
  /** The credential opened its channel: the payer's deposit moved, so the answer carries a receipt in any case. */
  opened?: boolean;
}

export type SettleResult =
  | { status: 'settled'; reference: string }
  /** It did not happen and will not: nothing was charged. */
  | { status: 'failed'; reason: string }
  /** It may or may not have happened: ask again later. */
  | { status: 'unknown'; reason: string };

/** What a rail can do with money that decides where it goes. */
export interface RailTraits {
  /** Takes less than was authorized, where a call cost less. */
  takesParts: boolean;
  /** What is signed is good for as long as slow work takes. */
  outlastsSlowWork: boolean;
}

/** Where money goes for these terms: straight to the payee where nothing has to be split or given back. */
export function custodyOf({ takesParts, outlastsSlowWork }: RailTraits, terms: Terms): Custody {
  if (terms.kind === 'operation') return 'direct';
  if (terms.feeBps > 0 || terms.collected || terms.live) return 'collected';
  if (takesParts) return 'direct';
  if (terms.kind === 'binding' || terms.mode === 'metered') return 'collected';
  return terms.slow && !outlastsSlowWork ? 'collected' : 'direct';
}

export function lower(address: string): Address {
  return address.toLowerCase() as Address;
}

export function assetId(chainId: number, token: string): string {
  return `eip155:${chainId}/${token.toLowerCase()}`;
}

export function payerDid(chainId: number, address: string): string {
  return `did:pkh:eip155:${chainId}:${address.toLowerCase()}`;
}
