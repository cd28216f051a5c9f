/** x402 credentials (`PAYMENT-SIGNATURE`, and `X-PAYMENT` of version 1): only their shape is checked. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { SOLANA_ADDRESS } from '../../../shared/config.ts';
import { Problem } from '../../../shared/problem.ts';
import { lower } from '../../terms.ts';
import { sha256 } from '../common.ts';
import type { Presented } from '../method.ts';
import { hasNonce } from './nonce.ts';
import { readPaymentIdentifier } from './payment-identifier.ts';
import { networkOfName } from './version-1.ts';

/** `id` is network, payer and nonce; `hash` is of what is signed, and of what was accepted and named with it. */
export interface X402Credential extends Presented {
  via: 'x402';
  rail: 'x402/exact' | 'x402/upto' | 'x402/batch-settlement';
  version: 1 | 2;
  payload: X402Payload;
}

const hex = z
  .string()
  .regex(/^0x[0-9a-fA-F]*$/)
  .max(16_384);
const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/);
const atomic = z.string().regex(/^\d{1,78}$/);

const exactPayload = z.object({
  signature: hex,
  authorization: z.object({
    from: address,
    to: address,
    value: atomic,
    validAfter: atomic,
    validBefore: atomic,
    nonce: z.string().regex(/^0x[0-9a-fA-F]{64}$/),
  }),
});

const uptoPayload = z.object({
  signature: hex,
  permit2Authorization: z.object({
    from: address,
    permitted: z.object({ token: address, amount: atomic }),
    spender: address,
    nonce: atomic,
    deadline: atomic,
    witness: z.object({ to: address, facilitator: address, validAfter: atomic }),
  }),
});

const hash = z.string().regex(/^0x[0-9a-fA-F]{64}$/);
/** Below 2^53, so that the registry's integers stay exact. */
const small = z.string().regex(/^\d{1,15}$/);

const MAX_UINT40 = 2 ** 40 - 1;

/** A cumulative voucher; `deposit` puts something into its channel, `refund` asks for what is left in it. */
const batchPayload = z.object({
  type: z.enum(['deposit', 'voucher', 'refund']),
  channelConfig: z.object({
    payer: address,
    payerAuthorizer: address,
    receiver: address,
    receiverAuthorizer: address,
    token: address,
    withdrawDelay: z.number().int().nonnegative().max(MAX_UINT40),
    salt: hash,
  }),
  voucher: z.object({ channelId: hash, maxClaimableAmount: small, signature: hex }),
  deposit: z
    .object({
      amount: small,
      authorization: z.object({
        erc3009Authorization: z.object({ validAfter: atomic, validBefore: atomic, salt: hash, signature: hex }),
      }),
    })
    .optional(),
  amount: small.optional(),
});

export type BatchPayload = z.infer<typeof batchPayload>;

const evmNetwork = z.string().regex(/^eip155:\d{1,12}$/);
const solanaNetwork = z.string().regex(/^solana:[1-9A-HJ-NP-Za-km-z]{32}$/);
const solanaAddress = z.string().regex(SOLANA_ADDRESS);

/** A transaction that lacks the signature of who pays its fee: at most 1,232 bytes. */
const solanaPayload = z.object({
  transaction: z
    .string()
    .regex(/^[A-Za-z0-9+/]+={0,2}$/)
    .max(1_644),
});

/** x402 v2 `PaymentPayload` (x402 specification, section 5.2). */
const version2 = z.object({
  x402Version: z.literal(2),
  resource: z
    .object({ url: z.string().max(8192) })
    .loose()
    .optional(),
  accepted: z.object({
    scheme: z.enum(['exact', 'upto', 'batch-settlement']),
    network: z.union([evmNetwork, solanaNetwork]),
    asset: z.union([address, solanaAddress]),
    amount: atomic,
    payTo: z.union([address, solanaAddress]),
    maxTimeoutSeconds: z.number(),
    extra: z.record(z.string(), z.unknown()).optional(),
  }),
  payload: z.union([exactPayload, uptoPayload, solanaPayload, batchPayload]),
  extensions: z.record(z.string(), z.unknown()).optional(),
});

/** x402 v1 `PaymentPayload` (x402 specification v1, section 5.2). */
const version1 = z.object({
  x402Version: z.literal(1),
  scheme: z.literal('exact'),
  network: z
    .string()
    .max(40)
    .transform((name) => networkOfName(name) ?? '')
    .pipe(evmNetwork),
  payload: exactPayload,
});

const paymentPayload = z.discriminatedUnion('x402Version', [version1, version2]);

type Version2 = z.infer<typeof version2>;

/** A payment of either version; of what was accepted, version 1 says what is signed alone. */
export interface X402Payload extends Pick<Version2, 'resource' | 'payload' | 'extensions'> {
  accepted: Pick<Version2['accepted'], 'scheme' | 'network' | 'amount' | 'payTo'> & Partial<Version2['accepted']>;
}

/** What is signed for a transfer on an EVM chain. @throws Problem `payment_invalid` for anything else */
export function evmPayload({ payload }: X402Payload): z.infer<typeof exactPayload> | z.infer<typeof uptoPayload> {
  if ('transaction' in payload)
    throw new Problem('payment_invalid', 'A transaction of Solana pays on no other network.');
  if ('channelConfig' in payload) throw new Problem('payment_invalid', 'A voucher of a channel is no transfer.');
  return payload;
}

/** A voucher, and what comes with it. @throws Problem `payment_invalid` for anything else */
export function batchPayloadOf({ payload: { payload } }: X402Credential): BatchPayload {
  if ('channelConfig' in payload) return payload;
  throw new Problem('payment_invalid', 'This is no voucher of a channel.');
}

/** What of a transaction is signed: after the signatures, of which there are fewer than 128. */
export function signedMessage(transaction: Uint8Array): Uint8Array {
  const [signatures = 0] = transaction;
  const start = 1 + 64 * signatures;
  if (signatures === 0 || signatures > 127 || transaction.length <= start)
    throw new Problem('payment_invalid', 'This is not a readable transaction of Solana.');
  return transaction.subarray(start);
}

export function isX402(presented: Presented): presented is X402Credential {
  return presented.via === 'x402';
}

/** @throws Problem `payment_invalid` for a credential of another method */
export function x402Of(presented: Presented): X402Credential {
  if (isX402(presented)) return presented;
  throw new Problem('payment_invalid', 'Not an x402 payment.');
}

/**
 * The `id` is the same for an authorization whatever the version it is shown in: it is one payment.
 * @throws Problem `payment_invalid`
 */
export function readX402(text: string): X402Credential {
  let sent: z.infer<typeof paymentPayload>;
  try {
    sent = paymentPayload.parse(JSON.parse(Buffer.from(text, 'base64').toString('utf8')));
  } catch (error) {
    throw new Problem('payment_invalid', 'This is not a readable payment of x402 v2 or v1.', { cause: error });
  }
  const payload = sent.x402Version === 2 ? sent : asVersion2(sent);
  const { scheme, network } = payload.accepted;
  const solana = 'transaction' in payload.payload;
  if (scheme !== schemeOf(payload.payload) || solana !== network.startsWith('solana:'))
    throw new Problem('payment_invalid', `The payload does not fit the scheme ${scheme} on ${network}.`);
  return {
    via: 'x402',
    rail: `x402/${scheme}`,
    id: `x402:${scheme}:${network}:${nonceOf(payload)}`,
    hash: 'channelConfig' in payload.payload ? hashOfVoucher(payload.payload) : sha256(canonicalJson(sent)),
    ...('channelConfig' in payload.payload ? { repeats: true } : {}),
    ...('channelConfig' in payload.payload || !hasNonce(payload.accepted.extra?.challenge) ? { onChain: true } : {}),
    idempotencyKey: readPaymentIdentifier(payload.extensions),
    text,
    version: sent.x402Version,
    payload,
  };
}

function schemeOf(payload: Version2['payload']): Version2['accepted']['scheme'] {
  if ('channelConfig' in payload) return 'batch-settlement';
  return 'permit2Authorization' in payload ? 'upto' : 'exact';
}

/** However the voucher is shown: with a deposit that was not known to have arrived, or without. */
function hashOfVoucher({ voucher }: BatchPayload): string {
  return sha256(`${voucher.channelId} ${BigInt(voucher.maxClaimableAmount)} ${voucher.signature}`.toLowerCase());
}

/** What a payment can be made with once. Of a channel: what it had spent before, and what it may have spent then. */
function nonceOf({ payload, accepted }: X402Payload): string {
  if ('channelConfig' in payload) {
    const most = BigInt(payload.voucher.maxClaimableAmount);
    return `${payload.voucher.channelId.toLowerCase()}:${most - BigInt(accepted.amount)}:${most}`;
  }
  if ('transaction' in payload)
    return createHash('sha256')
      .update(signedMessage(Buffer.from(payload.transaction, 'base64')))
      .digest('hex');
  if ('authorization' in payload)
    return `${lower(payload.authorization.from)}:${payload.authorization.nonce.toLowerCase()}`;
  const { from, nonce } = payload.permit2Authorization;
  return `${lower(from)}:${BigInt(nonce)}`;
}

/** The network that a payment was signed for. @param id of a credential */
export function networkOfId(id: string): string | undefined {
  return /^x402:\w+:(\w+:\w+):/.exec(id)?.[1];
}

function asVersion2({ scheme, network, payload }: z.infer<typeof version1>): X402Payload {
  const { value, to } = payload.authorization;
  return { accepted: { scheme, network, amount: value, payTo: to }, payload };
}

/** The same text for the same value, in whatever order its members came. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_name, member: unknown) =>
    typeof member === 'object' && member !== null && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );
}
