/** Drizzle's view of migrations/0100_payments.sql. Amounts are micro-USD, times milliseconds since the Unix epoch. */
import type { Money } from '../../shared/money.ts';
import { blob, customType, integer, primaryKey, sql, sqliteTable, text } from '../drizzle.ts';

/** Integer micro-USD; the registry reads integers as numbers, exact up to nine billion USD. */
const money = customType<{ data: Money; driverData: number }>({
  dataType: () => 'integer',
  toDriver: (value) => Number(value),
  fromDriver: (value) => BigInt(value) as Money,
});

export type PaymentState =
  | 'verified'
  | 'working'
  | 'settling'
  | 'settled'
  | 'answered'
  | 'released'
  | 'refund_owed'
  | 'refunded';

export type PaymentKind = 'operation' | 'route' | 'binding';

/** Where the money is between the payer and the payee: nowhere, with the host, or in a session's channel. */
export type Custody = 'direct' | 'collected' | 'channel';

export const payments = sqliteTable('payments', {
  id: text('id').primaryKey(),
  credentialId: text('credential_id').notNull(),
  credentialHash: text('credential_hash').notNull(),
  credential: text('credential'),
  rail: text('rail').notNull(),
  kind: text('kind').$type<PaymentKind>().notNull(),
  name: text('name').notNull(),
  scope: text('scope').notNull(),
  slug: text('slug'),
  tenant: text('tenant'),
  asset: text('asset').notNull(),
  payer: text('payer').notNull(),
  payerDid: text('payer_did').notNull(),
  recipient: text('recipient').notNull(),
  payTo: text('pay_to').notNull(),
  custody: text('custody').$type<Custody>().notNull(),
  channel: text('channel'),
  authorized: money('authorized').notNull(),
  charged: money('charged'),
  feeBps: integer('fee_bps').notNull(),
  fee: money('fee').notNull(),
  refunded: money('refunded').notNull(),
  state: text('state').$type<PaymentState>().notNull(),
  terms: text('terms').notNull(),
  prepared: text('prepared'),
  settleBefore: integer('settle_before'),
  pendingSince: integer('pending_since'),
  reference: text('reference'),
  receipt: text('receipt'),
  answerStatus: integer('answer_status'),
  answerHeaders: text('answer_headers', { mode: 'json' }).$type<[string, string][]>(),
  answerBody: blob('answer_body', { mode: 'buffer' }),
  answerComplete: integer('answer_complete', { mode: 'boolean' }).notNull(),
  clientGone: integer('client_gone', { mode: 'boolean' }).notNull(),
  attempts: integer('attempts').notNull(),
  error: text('error'),
  createdAt: integer('created_at').notNull(),
  updatedAt: integer('updated_at').notNull(),
  settledAt: integer('settled_at'),
  place: text('place'),
  capturedBy: text('captured_by'),
  /** Which node of several is at work on it. */
  node: text('node'),
});

/** The very words of `payments_open`: SQLite takes a partial index only for its own condition, without parameters. */
export const isOpenPayment = sql`${payments.state} IN ('verified', 'working', 'settling', 'settled', 'refund_owed')`;

export type PaymentRow = typeof payments.$inferSelect;

export const paymentMeters = sqliteTable('payment_meters', {
  payment: text('payment').primaryKey(),
  attempt: integer('attempt').notNull(),
  total: money('total').notNull(),
});

export const paymentKeys = sqliteTable('payment_keys', {
  key: text('key').primaryKey(),
  payment: text('payment').notNull(),
  requestHash: text('request_hash'),
  createdAt: integer('created_at').notNull(),
});

export const paymentClaims = sqliteTable('payment_claims', {
  key: text('key').primaryKey(),
  expiresAt: integer('expires_at').notNull(),
});

export const ledger = sqliteTable('ledger', {
  id: integer('id').primaryKey(),
  txn: text('txn').notNull(),
  account: text('account').notNull(),
  asset: text('asset').notNull(),
  amount: money('amount').notNull(),
  kind: text('kind').notNull(),
  payment: text('payment'),
  reference: text('reference'),
  at: integer('at').notNull(),
});

export type ChannelState = 'opening' | 'open' | 'closing' | 'closed' | 'failed';

export const paymentChannels = sqliteTable('payment_channels', {
  id: text('id').primaryKey(),
  asset: text('asset').notNull(),
  payer: text('payer').notNull(),
  payee: text('payee').notNull(),
  signer: text('signer').notNull(),
  descriptor: text('descriptor').notNull(),
  escrow: text('escrow').notNull(),
  chainId: integer('chain_id').notNull(),
  state: text('state').$type<ChannelState>().notNull(),
  openTransaction: text('open_transaction'),
  openHash: text('open_hash'),
  deposit: money('deposit').notNull(),
  voucher: money('voucher').notNull(),
  voucherSignature: text('voucher_signature').notNull(),
  reserved: money('reserved').notNull(),
  captured: money('captured').notNull(),
  units: integer('units').notNull(),
  settled: money('settled').notNull(),
  /** What of `settled` was given to payouts and refunds; the database lets it be no more. */
  committed: money('committed')
    .notNull()
    .default(0n as Money),
  /** The greatest voucher that was sent to the chain, where everybody can read its signature. */
  published: money('published')
    .notNull()
    .default(0n as Money),
  closeRequestedAt: integer('close_requested_at').notNull(),
  closeHash: text('close_hash'),
  error: text('error'),
  createdAt: integer('created_at').notNull(),
  usedAt: integer('used_at').notNull(),
  settledAt: integer('settled_at'),
});

export type ChannelRow = typeof paymentChannels.$inferSelect;

export const paymentVouchers = sqliteTable(
  'payment_vouchers',
  {
    channel: text('channel').notNull(),
    cumulative: money('cumulative').notNull(),
    signature: text('signature').notNull(),
  },
  (table) => [primaryKey({ columns: [table.channel, table.cumulative] })],
);

export type OutgoingKind = 'payout' | 'fee' | 'refund';
export type OutgoingState = 'waiting' | 'owed' | 'sending' | 'sent' | 'stuck' | 'waived';

export const paymentOutgoing = sqliteTable('payment_outgoing', {
  id: text('id').primaryKey(),
  payment: text('payment').notNull(),
  kind: text('kind').$type<OutgoingKind>().notNull(),
  asset: text('asset').notNull(),
  source: text('source').notNull(),
  recipient: text('recipient').notNull(),
  amount: money('amount').notNull(),
  state: text('state').$type<OutgoingState>().notNull(),
  channel: text('channel'),
  /** The money for it is with the host. */
  covered: integer('covered', { mode: 'boolean' }).notNull().default(false),
  /** The tenant whose own wallet has the money: it is sent when as much was held back from the tenant's revenue. */
  debtor: text('debtor'),
  withheld: money('withheld')
    .notNull()
    .default(0n as Money),
  transfer: text('transfer'),
  attempts: integer('attempts').notNull(),
  error: text('error'),
  createdAt: integer('created_at').notNull(),
  updatedAt: integer('updated_at').notNull(),
});

/** The very words of `payment_outgoing_open`. */
export const isOpenOutgoing = sql`${paymentOutgoing.state} NOT IN ('sent', 'waived')`;

export type OutgoingRow = typeof paymentOutgoing.$inferSelect;

export const paymentTransfers = sqliteTable('payment_transfers', {
  id: text('id').primaryKey(),
  asset: text('asset').notNull(),
  source: text('source').notNull(),
  transactionRaw: text('transaction_raw').notNull(),
  hash: text('hash').notNull(),
  validUntil: integer('valid_until'),
  state: text('state').$type<'sending' | 'sent' | 'failed'>().notNull(),
  createdAt: integer('created_at').notNull(),
});
