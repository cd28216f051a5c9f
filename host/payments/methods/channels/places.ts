/** Channels on all networks of the host: each credential that pays or manages one is of one network. */
import type { ChannelStore } from '../../../registry/payments/channels.ts';
import type { Presented } from '../method.ts';
import { isMpp, type MppCredential } from '../tempo/credential.ts';
import type { SessionVerifier } from '../tempo/sessions/verifier.ts';
import type { BatchKeeper } from '../x402/batch/keeper.ts';
import { isX402 } from '../x402/credential.ts';
import type { ChannelCalls } from './calls.ts';
import type { ChannelKeeper } from './keeper.ts';

export class SessionPlaces {
  readonly channels: ChannelStore;
  /** Of all networks. */
  readonly calls: ChannelCalls;
  readonly #verifiers: readonly SessionVerifier[];
  readonly #batches: readonly BatchKeeper[];

  constructor(
    channels: ChannelStore,
    calls: ChannelCalls,
    verifiers: readonly SessionVerifier[],
    batches: readonly BatchKeeper[],
  ) {
    this.channels = channels;
    this.calls = calls;
    this.#verifiers = verifiers;
    this.#batches = batches;
  }

  get keepers(): ChannelKeeper[] {
    return [...this.#verifiers, ...this.#batches];
  }

  /**
   * What a credential that only manages a channel is answered with.
   * @returns undefined for one that asks for content, or is of no channel
   * @throws Problem `payment_invalid`
   */
  async managed(presented: Presented): Promise<Response | undefined> {
    if (isMpp(presented)) return this.#of(presented)?.managed(presented.credential);
    if (!isX402(presented) || presented.rail !== 'x402/batch-settlement') return undefined;
    return this.#batches.find(({ name }) => name === presented.payload.accepted.network)?.refund(presented);
  }

  /** The channel that a voucher is of, by its own word; undefined for every other credential. @throws Problem `payment_invalid` */
  voucherOf(presented: Presented): string | undefined {
    if (!isMpp(presented)) return undefined;
    const payload = this.#of(presented)?.read(presented.credential);
    return payload?.action === 'voucher' ? payload.channelId : undefined;
  }

  /** Takes a voucher that pays for nothing by itself. @throws Problem `payment_invalid` */
  async noted(presented: Presented): Promise<Response | undefined> {
    return isMpp(presented) ? this.#of(presented)?.manage(presented.credential) : undefined;
  }

  /** By the challenge, which we wrote. */
  #of({ rail, credential }: MppCredential): SessionVerifier | undefined {
    if (rail !== 'tempo/session') return undefined;
    const { chainId } = (credential.challenge.request.methodDetails ?? {}) as { chainId?: number };
    return this.#verifiers.find(({ network }) => network.chainId === chainId);
  }
}
