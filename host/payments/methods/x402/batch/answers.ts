/**
 * What clients of `batch-settlement` read to keep count: receipts (`PAYMENT-RESPONSE`), and in a 402 what their channel
 * is like, which they go on from where they have lost count.
 */
import type { ChannelRow, PaymentRow } from '../../../../registry/payments/schema.ts';
import type { Money } from '../../../../shared/money.ts';
import { Problem } from '../../../../shared/problem.ts';
import { networkOfId, readX402 } from '../credential.ts';

/** Reasons as @x402/evm names them: its clients act on some of them. */
export const REASONS = {
  /** Clients take over what the 402 says of their channel, and try again once. */
  outdated: 'invalid_batch_settlement_evm_cumulative_amount_mismatch',
  busy: 'invalid_batch_settlement_evm_channel_busy',
  smallDeposit: 'invalid_batch_settlement_evm_deposit_below_min_deposit',
  noRest: 'invalid_batch_settlement_evm_refund_no_balance',
  partOfRest: 'invalid_batch_settlement_evm_refund_amount_invalid',
} as const;

const MEMBER = 'batchSettlement';

export interface Fault {
  reason: string;
  /** CAIP-2. */
  network: string;
  /** For `extra` of the offer. */
  extra: Record<string, unknown>;
}

export function fault(
  network: string,
  reason: keyof typeof REASONS,
  detail: string,
  extra: Record<string, unknown> = {},
): Problem {
  const said: Fault = { reason: REASONS[reason], network, extra };
  return new Problem('payment_invalid', detail, { extensions: { [MEMBER]: said } });
}

export function faultOf(problem: Problem | undefined): Fault | undefined {
  return problem?.extensions[MEMBER] as Fault | undefined;
}

/**
 * The client counts otherwise than the host.
 * @param channel undefined: the chain knows all there is
 */
export function outdated(network: string, channel: ChannelRow | undefined): Problem {
  return fault(
    network,
    'outdated',
    'The voucher does not go on from what this channel has spent and holds; sign one that does.',
    channel && {
      channelState: stateOf(channel),
      voucherState: { signedMaxClaimable: channel.voucher.toString(), signature: channel.voucherSignature },
    },
  );
}

function stateOf(channel: ChannelRow): Record<string, unknown> {
  return {
    channelId: channel.id,
    balance: channel.deposit.toString(),
    totalClaimed: channel.settled.toString(),
    withdrawRequestedAt: channel.closeRequestedAt,
    chargedCumulativeAmount: channel.captured.toString(),
  };
}

/** `PAYMENT-RESPONSE` of a call. @param channel as it is once `charged` is in the books */
export function batchReceipt(row: PaymentRow, channel: ChannelRow, charged: Money): string {
  const sent = row.credential === null ? undefined : readX402(row.credential).payload.payload;
  const deposit = sent && 'channelConfig' in sent ? sent.deposit : undefined;
  return base64({
    success: true,
    // A voucher moves nothing.
    transaction: deposit ? (channel.openHash ?? '') : '',
    network: networkOfId(row.credentialId) ?? '',
    payer: row.payer,
    amount: deposit?.amount ?? '',
    extra: { chargedAmount: charged.toString(), channelState: stateOf(channel) },
  });
}

/** The answer to a payer who asked for what was left. @param rest what went back */
export function refundAnswer(network: string, channel: ChannelRow, rest: bigint): Response {
  const response = {
    success: true,
    transaction: channel.closeHash ?? '',
    network,
    payer: channel.payer,
    amount: rest.toString(),
    extra: { channelState: { ...stateOf(channel), balance: channel.captured.toString() } },
  };
  return Response.json(
    { message: 'The rest of the deposit went back to its payer.', channelId: channel.id },
    {
      headers: {
        'payment-response': base64(response),
        'cache-control': 'no-store',
        'access-control-expose-headers': 'PAYMENT-RESPONSE',
      },
    },
  );
}

function base64(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}
