/** `Payment-Receipt` of sessions, as mppx clients read it to keep count. */
import { Session } from 'mppx/tempo';
import type { Hex } from 'viem';
import type { ChannelRow } from '../../../../registry/payments/schema.ts';

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
