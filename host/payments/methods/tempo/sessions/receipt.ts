/** `Payment-Receipt` of sessions, as mppx clients read it to keep count. */
import { Session } from 'mppx/tempo';
import type { Hex } from 'viem';
import type { ChannelRow } from '../../../../registry/payments/schema.ts';
import { type Money, micro } from '../../../../shared/money.ts';

const { Protocol } = Session.Precompile;

/** @param spent what was captured so far; default: as the row says */
export function sessionReceipt(
  channel: Pick<ChannelRow, 'id' | 'voucher' | 'captured' | 'units'>,
  challengeId: string,
  hash?: string,
): string {
  return Protocol.serializeSessionReceipt(
    Protocol.createSessionReceipt({
      challengeId,
      channelId: channel.id as Hex,
      acceptedCumulative: channel.voucher,
      spent: channel.captured,
      units: channel.units,
      ...(hash === undefined ? {} : { txHash: hash as Hex }),
    }),
  );
}

/**
 * The voucher that a call's receipt may speak of, atomic units. Clients forget the vouchers of calls that failed and
 * refuse receipts for more than they remember: so it is the call's own voucher, where that covers what was captured.
 * @param text a credential that was taken
 */
export function acknowledged(text: string, channel: Pick<ChannelRow, 'voucher' | 'captured'>): Money {
  const json = Buffer.from(text.replace(/^payment\s+/i, ''), 'base64url').toString();
  const { cumulativeAmount } = (JSON.parse(json) as { payload: { cumulativeAmount?: string } }).payload;
  const own = cumulativeAmount === undefined ? channel.voucher : micro(BigInt(cumulativeAmount));
  return own < channel.voucher && own >= channel.captured ? own : channel.voucher;
}

/** The receipt of a stream, as its last event. Nothing is said of vouchers that other calls have sent. */
export function receiptEvent(channel: Parameters<typeof sessionReceipt>[0], challengeId: string): string {
  const receipt = sessionReceipt({ ...channel, voucher: channel.captured }, challengeId);
  return Protocol.formatReceiptEvent(Protocol.deserializeSessionReceipt(receipt));
}

/** The event of a stream by which its payer is asked for a voucher. @param required in all, of the channel */
export function needVoucherEvent({ id, voucher, deposit }: ChannelRow, required: bigint): string {
  return Protocol.formatNeedVoucherEvent({
    channelId: id as Hex,
    requiredCumulative: required.toString(),
    acceptedCumulative: voucher.toString(),
    deposit: deposit.toString(),
  });
}
