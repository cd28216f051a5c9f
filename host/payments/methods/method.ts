/** What a method of payment is: all that the rest of payments knows of it. See README.md for how to add one. */
import type { ChannelRow, PaymentRow } from '../../registry/payments/schema.ts';
import type { Meta } from '../../shared/mcp-message.ts';
import type { Money } from '../../shared/money.ts';
import type { Problem } from '../../shared/problem.ts';
import type { Reissue } from '../../shared/reissue.ts';
import type { Discovery } from '../discovery.ts';
import type { Offer, SettleResult, Terms, Verified } from '../terms.ts';
import type { Address, OfferInfo, RailName } from '../types.ts';

/** A credential as a caller sent it: of the right shape, and nothing more is known of it. */
export interface Presented {
  /** The method that read it, as `PaymentMethod.via`. */
  via: string;
  rail: RailName;
  /** Tells one payment from all others, whatever its signature. */
  id: string;
  /** SHA-256 of all that was sent: two signatures for one payment are two credentials. */
  hash: string;
  /** What the payer calls the purchase, where the credential says it: a retry that signs anew has the same. */
  idempotencyKey?: string | undefined;
  /** The credential as it was sent; its rail reads it again to settle it. */
  text: string;
  /** The id comes again, for something else, where nothing was charged by it. */
  repeats?: true;
  /** The chain tells everybody all of it once it is settled: whoever shows it then need not be its payer. */
  onChain?: true;
}

/** What a payment has to be for. */
export interface Asked {
  realm: string;
  /** URL of the resource as the caller sees it. */
  resource: string;
  /** Digest of the request's body; undefined when there is none or it was not read. */
  digest: string | undefined;
  /** Real time, ms. */
  now: number;
}

/** What a credential says about what it is for. */
export interface Named {
  /** Atomic units of the price that was accepted. */
  amount: bigint;
  /** Digest of the request's body, where the credential is bound to it. */
  digest?: string | undefined;
  /** URL of the resource, where the credential names it. */
  resource?: string | undefined;
  /** What our challenge carried, where the credential authenticates it. */
  meta?: Record<string, string>;
  /** What the payer sent back of `Terms.meta.token`, where it does not. */
  token?: unknown;
  /** A payment of x402 v1, which does not carry the challenge. */
  version1?: boolean;
}

/** What changes from one 402 to the next. */
export interface Issue {
  /** HMAC key of our challenges. */
  key: string;
  realm: string;
  resource: string;
  /** `sha-256=<base64>` of the body that the credential will be bound to. */
  digest?: string | undefined;
  /** How it is called, for indexers. */
  discovery?: Discovery | undefined;
  /** Whether a handler's own challenge also offers x402 v1. */
  version1?: boolean | undefined;
  /** What payers are told about the price. */
  description: string;
  /** Why a payment is asked for (again); undefined: none was offered. */
  problem: Problem | undefined;
}

/** What a 402 carries of the offers of one method. */
export interface Announced {
  headers: Record<string, string>;
  /** Members of its body, for clients that read their terms there. */
  body?: Record<string, unknown>;
  /** What of it no other 402 for the same call has. */
  reissue(): Reissue;
}

export type Announce = (issue: Issue) => Announced;

export interface PaymentMethod {
  /** Stands in its offers and credentials. */
  readonly via: string;
  /** First parts of the names of its rails. */
  readonly family: string;
  /** Request headers that may carry its credential, in lower case. */
  readonly headers: readonly string[];
  /** Response headers of its 402s and receipts: scripts of other origins may read them. */
  readonly exposed: readonly string[];
  /** Whether a value of one of `headers` is a credential of this method. Default: every value is. */
  carries?(value: string): boolean;
  /** Rails that move what was charged; the others move what was authorized. */
  readonly partialRails?: readonly RailName[];
  /**
   * @param key HMAC key of our challenges
   * @returns undefined when the request offers no payment by this method
   * @throws Problem `payment_invalid` for anything that is not a well-formed credential of ours
   */
  read(headers: Headers, key: string): Presented | undefined;
  named(presented: Presented): Named;
  /** The wallet that the credential says it is of, not checked yet; undefined where it names none. */
  payer(presented: Presented): Address | undefined;
  /** `Presented.hash` as payments of before places were noted have it. */
  formerHash?(presented: Presented): string;
  /**
   * Whether a credential is for what is being asked: the right scope, the present price, this request's body, in time.
   * Pure; what the credential says about the payer's money is the rail's to check.
   * @throws Problem `payment_invalid`
   */
  match(presented: Presented, sold: { terms: Terms; offers: readonly Offer[] }, asked: Asked): Offer;
  /** @param offers those of this method, at least one. Touches no chain and no disk: unpaid calls stay cheap */
  announce(offers: readonly Offer[], terms: Terms): Announce;
  /** An offer as discovery documents print it. */
  describe(offer: Offer): Pick<OfferInfo, 'intent' | 'method' | 'currency'>;
  tools: ToolTransport;
  /** Headers of what a channel's payer is told. @param channel as it is once `charged` is in the books */
  channelReceipt?(row: PaymentRow, channel: ChannelRow, charged: Money): Record<string, string>;
  /** Headers of the receipt of a settled charge. */
  receipt(row: PaymentRow, reference: string, charged: Money): Record<string, string>;
}

/** How a method is paid in calls of tools (MCP), in the terms of its headers. */
export interface ToolTransport {
  /** Member of a call's `_meta` that holds the credential. */
  readonly credential: string;
  /** The credential as header fields. @throws anything, for what is none */
  header(sent: unknown): Record<string, string>;
  /** What a 402 with these headers says: a member of `_meta`, or the content of the result. */
  required(headers: Headers): { challenge?: Meta; structuredContent?: object };
  /** Members of `_meta` of a paid answer. @param sent the credential */
  receipt(headers: Headers, sent: unknown): Meta;
}

/** One way to pay by a method, on a network. Rails move money on chains; they keep no books. */
export interface Rail {
  name: RailName;
  /** What it moves, as in the books: with the name it tells the rail from those of other networks. */
  asset: string;
  /** Undefined where this rail cannot sell these terms. */
  offer(terms: Terms): Offer | undefined;
  /**
   * Waits for what has to end before this can be verified. Meanwhile it takes no place of those that are verified.
   * @returns what ends its turn, once it is verified
   * @throws Problem `payment_invalid`
   */
  turn?(presented: Presented): Promise<() => void>;
  /**
   * Checks signature, amount, recipient, balance and time without moving money. The caller has checked that the
   * credential is for `offer`, and that it is its turn.
   * @throws Problem `payment_invalid`
   */
  verify(presented: Presented, offer: Offer): Promise<Verified>;
  /** Takes `amount` (at most what was authorized). Never throws: what is not known is `unknown`. */
  settle(payment: PaymentRow, amount: Money): Promise<SettleResult>;
  /** Asks the chain what became of a settlement, and tries it again where that is safe. */
  reconcile(payment: PaymentRow, amount: Money): Promise<SettleResult>;
  /** What the payer is told where the credential has paid for something else. Default: to pay the new challenge. */
  usedUp?(presented: Presented): Promise<Problem>;
}
