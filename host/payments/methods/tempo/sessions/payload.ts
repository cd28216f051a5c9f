/**
 * The boundary for session credentials: open, voucher, top-up and close (TIP-1034). Checks the shape and that the
 * descriptor hashes to the channel it names; signatures and money are checked where they are used.
 */
import { Session } from 'mppx/tempo';
import type { Hex, Address as ViemAddress } from 'viem';
import { z } from 'zod';
import { type Money, micro } from '../../../../shared/money.ts';
import { Problem } from '../../../../shared/problem.ts';
import { lower } from '../../../terms.ts';
import type { Address } from '../../../types.ts';

export type Descriptor = Parameters<typeof Session.Precompile.Channel.computeId>[0] extends infer Input
  ? Omit<Input, 'chainId' | 'escrow'>
  : never;

const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/) as unknown as z.ZodType<ViemAddress>;
const hash = z.string().regex(/^0x[0-9a-fA-F]{64}$/) as unknown as z.ZodType<Hex>;
const hex = z
  .string()
  .regex(/^0x[0-9a-fA-F]+$/)
  .max(32_768) as unknown as z.ZodType<Hex>;
/** Below 2^53, so that the registry's integers stay exact. */
const amount = z
  .string()
  .regex(/^\d{1,15}$/)
  .transform((text) => micro(BigInt(text)));

const descriptor = z.object({
  payer: address,
  payee: address,
  operator: address,
  token: address,
  salt: hash,
  authorizedSigner: address,
  expiringNonceHash: hash,
});

const payload = z.discriminatedUnion('action', [
  z.object({
    action: z.literal('open'),
    type: z.literal('transaction'),
    channelId: hash,
    transaction: hex,
    signature: hex,
    descriptor,
    cumulativeAmount: amount,
  }),
  z.object({
    action: z.literal('topUp'),
    type: z.literal('transaction'),
    channelId: hash,
    transaction: hex,
    descriptor,
    additionalDeposit: amount,
  }),
  z.object({ action: z.literal('voucher'), channelId: hash, descriptor, cumulativeAmount: amount, signature: hex }),
  z.object({ action: z.literal('close'), channelId: hash, descriptor, cumulativeAmount: amount, signature: hex }),
]);

export type SessionPayload = z.infer<typeof payload>;
export type Open = Extract<SessionPayload, { action: 'open' }>;
export type Voucher = Extract<SessionPayload, { action: 'voucher' }>;
export type TopUp = Extract<SessionPayload, { action: 'topUp' }>;
export type Close = Extract<SessionPayload, { action: 'close' }>;

/** Kinds of signatures that an escrow takes: `primitive` are those of TIP-1020 (ECDSA, P-256, WebAuthn). */
export type VoucherSignatures = 'ecdsa' | 'primitive';

export interface SessionNetwork {
  chainId: number;
  /** Which signatures of vouchers the escrow takes. */
  signatures: VoucherSignatures;
  escrow: ViemAddress;
  token: ViemAddress;
  /** The host's wallet that channels pay. */
  payee: Address;
}

/** Channels whose ids are remembered: every call of a session brings the same descriptor. */
const REMEMBERED = 1_000;
const ids = new Map<string, string>();

function idOf(given: Descriptor, { chainId, escrow }: SessionNetwork): string {
  const { payer, payee, operator, token, salt, authorizedSigner, expiringNonceHash } = given;
  const key = [chainId, escrow, payer, payee, operator, token, salt, authorizedSigner, expiringNonceHash].join(' ');
  const known = ids.get(key);
  if (known !== undefined) return known;
  const id = lower(Session.Precompile.Channel.computeId({ ...given, chainId, escrow }));
  const [oldest] = ids.size < REMEMBERED ? [] : ids.keys();
  if (oldest !== undefined) ids.delete(oldest);
  ids.set(key, id);
  return id;
}

/** @throws Problem `payment_invalid` */
export function readSessionPayload(value: unknown, network: SessionNetwork): SessionPayload {
  const parsed = payload.safeParse(value);
  if (!parsed.success)
    throw new Problem('payment_invalid', 'The session credential is malformed; pay the new challenge.');
  const { channelId, descriptor: given } = parsed.data;
  if (idOf(given, network) !== lower(channelId))
    throw new Problem('payment_invalid', 'The channel descriptor does not match its channel id.');
  if (lower(given.payee) !== network.payee || lower(given.token) !== lower(network.token))
    throw new Problem('payment_invalid', 'The channel pays another wallet or another token; open a new one.');
  if (BigInt(given.operator) !== 0n)
    throw new Problem('payment_invalid', 'Channels with an operator are not taken here.');
  return { ...parsed.data, channelId: lower(channelId) as Hex };
}

/** Who signs vouchers of a channel. */
export function signerOf(given: { payer: string; authorizedSigner: string }): Address {
  return lower(BigInt(given.authorizedSigner) === 0n ? given.payer : given.authorizedSigner);
}

export type { Money };
