/**
 * What the rest of the host sees of payments: the shapes that go in and come out of `createPayments()`.
 * Amounts are `Money` (integer micro-USD); every token in use has six decimals, so one unit is one micro-USD.
 */
import type { Duplex } from 'node:stream';
import type { InstanceSocket } from '../http/instance/fetch.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import type { MessageId, Meta, ToolResult } from '../shared/mcp-message.ts';
import type { Money } from '../shared/money.ts';
import type { CallShape } from './discovery.ts';
import type { Passes } from './passes.ts';

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A `0x` address in lower case; on Solana the address as it is. */
export type Address = `0x${string}`;

/** Who paid or proved: the address that signed, and the same as a decentralized identifier. */
export interface Payer {
  address: Address;
  /** `did:pkh:eip155:<chain>:<address>`, or `did:pkh:solana:<genesis>:<address>`. */
  did: string;
}

/** A way in which a credential can pay: the method and what it is called there, such as `tempo/charge`. */
export type RailName = `${string}/${string}`;

/** A payment that went through: the money is with its recipient (or held for it) and is never asked for again. */
export interface SettledPayment {
  /** Unique id of the payment in the books; also `x-payment-id`. */
  id: string;
  payer: Payer;
  /** What was taken. */
  amount: Money;
  rail: RailName;
  /** Transaction hash, or the channel id of a session. */
  reference: string;
}

/** What became of a payment, for metrics: labels of closed sets and the money that it was about. */
export interface PaymentEnd {
  rail: string;
  kind: string;
  /** `free`: a metered call that cost nothing; `released`: the work failed; `refunded`: it failed after it was paid. */
  outcome: 'charged' | 'free' | 'released' | 'refunded';
  microUsd: bigint;
  /** The operator's part of what was charged. */
  earnedMicroUsd: bigint;
}

export interface OperationAnswer {
  status: number;
  headers?: Record<string, string>;
  /** JSON text or any other text. */
  body: string;
}

/** A call that costs money and is answered by the host itself: deploy, renew. */
export interface PaidOperation {
  /** Under this name the completion was registered. */
  name: string;
  /** Binds a credential to what it pays for, such as `deploy` or `renew:hello`. */
  scope: string;
  amount: Money;
  /** Shown to the payer. */
  description: string;
  /** Who receives the money; default: the operator. */
  payTo?: Address;
  /** How it is called, for indexers. */
  call?: CallShape;
  /** The request's body, if the caller already read it; otherwise it is read here (at most `maxBodyBytes`). */
  body?: Uint8Array;
  maxBodyBytes?: number;
  /**
   * All checks of the request, after the credential was verified and before money moves. A Problem thrown here costs
   * the payer nothing. What it returns must be enough for `complete`, also after a restart.
   */
  prepare(payer: Payer, body: Uint8Array): Promise<Json>;
  /** Called when the payment came to nothing after `prepare` succeeded: give back what was reserved. */
  abandon?(prepared: Json): Promise<void>;
}

/** Makes a paid operation happen, after settling. Must be idempotent: it runs again after a crash. */
export type Completion = (prepared: Json, payment: SettledPayment) => Promise<OperationAnswer>;

export interface ProofRequest {
  /** Binds the proof to one operation, such as `PUT /_admin/code/hello`. */
  scope: string;
  /** Another signer is refused with `not_owner`. Lower case. */
  expectedOwner?: Address;
  description?: string;
}

export type ProofResult = { payer: Payer } | { response: Response };

/** A deployment as the toll needs it. */
export interface TollDeployment {
  slug: string;
  tenant: string;
  payTo: Address;
  paidRoutes: readonly PaidRoute[];
}

export interface PaidRoute extends CallShape {
  /** Upper case; `*` for any. */
  method: string;
  /** Exact path, or a prefix that ends in `*`. */
  path: string;
  /** USD, such as `0.05`; the most that a metered call can cost. */
  price: string;
  /** `fixed`: the price; `metered`: what the handler says in `x-charge`, at most the price. */
  mode: 'fixed' | 'metered';
  description?: string | undefined;
  sku?: string | undefined;
  pricingVersion?: number | undefined;
  /** The handler sees unpaid requests first (`x-payment-check: 1`) and may refuse them. */
  checkBeforePay?: boolean | undefined;
  /** The handler may take longer than a signed transaction lives: it is settled first and refunded if work fails. */
  slow?: boolean | undefined;
  /** A WebSocket that is charged while it is open, by what its handler reports; what it may cost is held meanwhile. */
  live?: boolean | undefined;
  /** USD of each event of a stream of server-sent events; the price is the most that all of them may cost. */
  perEvent?: string | undefined;
  /** The path is an MCP endpoint, and calls of this tool have the price. */
  tool?: string | undefined;
  /** Path of the tenant's own page for this 402, on its own origin; it has no price. */
  page?: string | undefined;
  /** The seller's address on Solana, where payers there pay to. */
  solana?: string | undefined;
  /** `false`: the host's own /.well-known/x402 does not name it. */
  listed?: boolean | undefined;
}

/** A request as far as it matters to whether it is paid. */
export interface BareCall {
  method: string;
  /** @param name in lower case */
  header(name: string): string | undefined;
}

/** The 402 of a call that can be answered without looking further. */
export interface Bare402 {
  /** As that of the route. */
  page: string | undefined;
  /**
   * @param digest `Content-Digest` (RFC 9530) of the call's body, to which the challenges are bound; undefined without one
   * @param reissue whether to say how the same 402 is written again
   */
  answer(digest: string | undefined, reissue?: boolean): { headers: Record<string, string>; body: string };
}

/** One way to pay as discovery prints it. */
export interface OfferInfo {
  /** Such as `charge`, `session`, `exact`, `upto`. */
  intent: string;
  method: string;
  /** Atomic integer string. */
  amount: string;
  currency: string;
  description?: string;
}

/** A request as a handler gets it. A `Request` is one, too; to make one takes longer than to send it. */
export interface ForwardedRequest {
  method: string;
  url: string;
  headers: Headers;
  body: ReadableStream<Uint8Array<ArrayBuffer>> | Uint8Array<ArrayBuffer> | null;
}

/**
 * Sends a request to a tenant's handler and answers its response as it streams. The request carries the edge's context
 * as it came; `headers` are set over its own. An abort of `signal` gives the handler up: it is not the request's own,
 * which Node forgets when nobody holds the request itself any more.
 */
export type Forward = (
  slug: string,
  request: ForwardedRequest,
  headers: Record<string, string>,
  signal: AbortSignal,
) => Promise<Response>;

/** As `Forward`, for a WebSocket handshake: the handler's socket, or its answer where it opens none. */
export type OpenSocket = (
  slug: string,
  request: ForwardedRequest,
  headers: Record<string, string>,
  signal: AbortSignal,
) => Promise<InstanceSocket | Response>;

/** The other end of a WebSocket handshake. */
export interface SocketCaller {
  socket: Duplex;
  /** What it sent after its handshake. */
  received: Buffer;
}

export interface OwnerTokens {
  /** A bearer token for one slug; null: a session, for all slugs of the wallet. */
  issue(slug: string | null, payer: Payer): { token: string; expiresAt: number };
  /** What a token is good for, or undefined. */
  read(token: string): Promise<{ slug: string | null; payer: Payer; expiresAt: number } | undefined>;
  /** The payer that the token was issued to, or undefined. `isSession`: a browser holds it. */
  verify(slug: string, token: string): Promise<(Payer & { isSession?: true }) | undefined>;
  /** It is worth nothing from now on, at all nodes. @returns whether it was worth something */
  end(token: string): Promise<boolean>;
}

/** Signing in by a wallet in a browser, with a message as EIP-4361 has it. */
export interface SignIns {
  /** @returns what the wallet is to sign; nothing is kept of it. @throws Problem invalid_field */
  begin(address: string): Promise<{ nonce: string; message: string; expiresAt: number }>;
  /** @returns who signed that message, for the first time. @throws Problem unauthorized */
  finish(proof: { address: string; nonce: string; signature: string }): Promise<Payer>;
}

export interface RevenueRow {
  /** `2026-11-01` (UTC). */
  day: string;
  slug: string;
  /** `POST /v1/x`. */
  route: string;
  payments: number;
  /** Charged to callers. */
  gross: Money;
  /** The operator's share of it. */
  fee: Money;
  /** Given back to callers from what was settled first. */
  refunded: Money;
}

export interface LedgerLine {
  transaction: string;
  at: number;
  account: string;
  asset: string;
  /** Positive: into the account. The lines of a transaction sum to zero per asset. */
  amount: Money;
  kind: string;
  payment: string | undefined;
  reference: string | undefined;
}

export interface ReconciliationReport {
  ok: boolean;
  /** Ledger transactions compared with the chain. */
  checked: number;
  differences: { what: string; ledger: string; chain: string; reference?: string }[];
  accounts: { account: string; asset: string; balance: string }[];
}

/** A payment or an outgoing transfer that needs a person, or will be tried again. */
export interface OpenItem {
  id: string;
  kind: 'pending-settlement' | 'refund-owed' | 'payout-owed' | 'fee-owed' | 'stuck' | 'tenant-debt';
  payment: string;
  asset: string;
  to: string;
  amount: string;
  since: number;
  error: string | undefined;
  /** The command that resolves it. */
  command: string;
}

/** A wallet of the host itself. */
export interface HostWallet {
  /** What it is for. */
  name: string;
  address: string;
  chain: string;
  /** Of the token that prices are in; null where the network does not answer. */
  usd: string | null;
  problem?: string;
  /** Where it pays gas: what it holds of the network's coin, and for how many settlements that is enough. */
  coin?: string;
  /** null: gas costs nothing there. */
  settlementsLeft?: number | null;
  isLow?: boolean;
}

/** What settling a tenant's x402 payments has cost the host today. */
export interface GasUse {
  tenant: string;
  spent: Money;
  budget: Money;
  /** The tenant's x402 offers are left out until tomorrow (UTC). */
  isUsedUp: boolean;
}

export interface FacilitatorStatus {
  /** Name and port of its URL. */
  host: string;
  /** What does not work there; undefined: what was asked last was answered. */
  problem: string | undefined;
}

/** A check of the books failed: nothing is sent until the operator has looked. */
export interface StoppedPayouts {
  since: number;
  /** `what` in words; `about`: the first few accounts, payments or channels that are concerned. */
  violations: { invariant: string; what: string; about: string[] }[];
  /** The command that lets payouts go on. */
  command: string;
}

export interface PaymentsLedger {
  /** By tenant storage identity; days are UTC, inclusive, `YYYY-MM-DD`. */
  revenue(filter: { tenant?: string; slug?: string; from?: string; to?: string }): Promise<RevenueRow[]>;
  /** RFC 4180 text of every payment of the tenant (or of all), oldest first. */
  csv(filter: { tenant?: string; slug?: string; from?: string; to?: string }): Promise<string>;
  lines(filter: { payment?: string; limit?: number }): Promise<LedgerLine[]>;
  reconcile(): Promise<ReconciliationReport>;
  /** Refunds owed, stuck payments. */
  open(): Promise<OpenItem[]>;
  /**
   * Resolves an open item: `retry` sends it (again) now, `paid` notes that the operator sent it by other means
   * (with the transaction's hash), `waive` closes it without money.
   */
  resolve(id: string, how: { action: 'retry' | 'paid' | 'waive'; reference?: string }): Promise<OpenItem | undefined>;
  /** What a tenant owes to payers, less what was held back for it; 0 where nothing. */
  debt(tenant: string): Promise<Money>;
  /** Gas of x402 settlements: the least price that is offered, and who used how much today. */
  gas(): Promise<{ floor: Money; tenants: GasUse[] }>;
  /** The facilitator elsewhere that settles x402; undefined: this host does. */
  facilitator(): FacilitatorStatus | undefined;
  /** What the host's own wallets hold; asks the chains. */
  wallets(): Promise<HostWallet[]>;
  /** Undefined: payouts and refunds are sent. */
  stopped(): StoppedPayouts | undefined;
  /** Lets payouts and refunds go on, until a check of another kind fails. */
  resume(): Promise<void>;
  /** Totals for the operator. */
  summary(): Promise<{ asset: string; gross: string; fees: string; operations: string; owed: string }[]>;
}

export interface PaymentBindings {
  /** Serves `env.PAYMENTS` of one tenant on a unix socket, until closed. Idempotent. */
  open(tenant: { tenant: string; slug: string; payTo: Address; socket: string }): Promise<void>;
  close(tenant: { tenant: string }): Promise<void>;
}

export interface ToolPayments {
  credentialsOf(meta: Meta): { headers: Record<string, string>; rest: Meta };
  toolAnswer(id: MessageId, meta: Meta, answer: Response, result: (text: string) => ToolResult): Promise<string>;
}

/** What a wallet is asked for. */
export interface AskedMandate {
  /** The most in each period. */
  amount: Money;
  /** Length of a period. */
  days: number;
  /** ms, a whole second. */
  until: number;
  /** Who is paid by it; default: the host, for a tenant. */
  recipient?: Address;
  /** Whose it is, such as `mandate:<tenant>`. */
  scope: string;
  description: string;
  /** Comes back when it is signed. */
  meta: Record<string, string>;
}

/** What a wallet has signed. Whoever holds it can have the host draw: it is kept like a secret. */
export interface Mandate {
  /** The key is derived from it. */
  nonce: string;
  payer: Address;
  /** Address of the key, by which the wallet knows it. */
  key: Address;
  /** micro-USD. */
  amount: string;
  days: number;
  until: number;
}

/** Why nothing can be drawn; a wallet that was emptied may be filled again. */
export type MandateProblem = 'revoked' | 'expired' | 'limit' | 'funds';

export interface Mandates {
  /** Value of `WWW-Authenticate`. */
  challenge(asked: AskedMandate, realm: string): string;
  /** @throws Problem payment_required, payment_invalid */
  accept(
    headers: Headers,
    asked: { scope: string; realm: string },
  ): Promise<{ mandate: Mandate; meta: Record<string, string> }>;
  /**
   * A charge, signed with the mandate's key. Nothing has moved: it pays when it is presented.
   * @param answer a 402 of this host
   * @returns the value of `Authorization`
   * @throws Problem payment_invalid with `mandate` among its members
   */
  pay(mandate: Mandate, amount: Money, answer: Headers): Promise<string>;
}

/** What wallets sign once, so that the operator may be paid from time to time. */
export interface OperatorMandates {
  /** The 402 that asks for it. @param scope such as `renew:hello` */
  ask(asked: { scope: string; amount: Money; days: number; until: number; description: string }): Response;
  /** @throws Problem payment_invalid | payment_required */
  accept(headers: Headers, scope: string): Promise<Mandate>;
  /** @param answer a 402 of `paidOperation` @returns the value of `Authorization`. @throws Problem payment_invalid with `mandate` */
  pay(mandate: Mandate, amount: Money, answer: Headers): Promise<string>;
}

export interface Payments {
  /** Finishes what a crash left open, then keeps timers for payouts, refunds and channels. */
  start(): Promise<void>;
  /** Ends timers and waits for settlements in flight. */
  stop(): Promise<void>;
  /** Must be called for each operation name before `start()`. */
  registerCompletion(name: string, complete: Completion, abandon?: (prepared: Json) => Promise<void>): void;
  paidOperation(request: Request, context: EdgeContext, operation: PaidOperation): Promise<Response>;
  proveOwner(request: Request, context: EdgeContext, proof: ProofRequest): Promise<ProofResult>;
  /** What others of the host give to those who have proved who they are. */
  passes<Claims extends object>(purpose: string): Passes<Claims>;
  ownerTokens: OwnerTokens;
  signIns: SignIns;
  /** Serves a request on a paid route of a tenant, from the unpaid 402 to the settled answer. */
  toll(request: Request, context: EdgeContext, deployment: TollDeployment): Promise<Response>;
  /**
   * Serves a WebSocket handshake on a paid route. It is paid once, when the handler opens the socket.
   * @returns what the caller is told where no socket was opened; undefined when a socket was, and has ended
   */
  tollSocket(
    request: Request,
    context: EdgeContext,
    deployment: TollDeployment,
    caller: SocketCaller,
  ): Promise<Response | undefined>;
  /** The 402 of `toll` at once, where the call brings nothing that would have to be looked at. */
  bare402(call: BareCall, context: EdgeContext, deployment: TollDeployment): Bare402 | undefined;
  bindings: PaymentBindings;
  /** Undefined where no network of this host has mandates. */
  mandates: OperatorMandates | undefined;
  ledger: PaymentsLedger;
  /** What a call of this price can be paid with; for openapi.json and llms.txt. */
  offers(
    amount: Money,
    options: {
      mode: 'fixed' | 'metered' | 'proof';
      payTo?: Address;
      payToSolana?: string;
      description?: string;
      perEvent?: string;
    },
  ): OfferInfo[];
  /** Names of header fields: of requests that may carry a credential, lower case; and of answers, for CORS. */
  headers: { credentials: readonly string[]; exposed: string };
  /** Payments of tool calls (MCP), as `host/payments/mcp/transport.ts` has them. */
  tools: ToolPayments;
  /** The request as a handler may see it that was paid for: without credentials, and without what only the toll may say. */
  withoutCredentials(request: Request): Request;
  /** Wallets that the host itself pays from, lower case. No revenue goes there: the books could not tell it apart. */
  hostWallets: readonly Address[];
  /** For healthz and the start screen. */
  status(): { network: string; testMoney: boolean; recipient: Address | undefined };
}
