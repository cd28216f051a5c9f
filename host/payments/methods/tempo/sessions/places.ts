/** Sessions on all networks of the host: a credential belongs to the one that its challenge, which we wrote, names. */
import type { ChannelStore } from '../../../../registry/payments/channels.ts';
import type { Presented } from '../../method.ts';
import { isMpp, type MppCredential } from '../credential.ts';
import type { ChannelCalls } from './calls.ts';
import type { SessionVerifier } from './verifier.ts';

export class SessionPlaces {
  readonly channels: ChannelStore;
  /** Of all networks. */
  readonly calls: ChannelCalls;
  readonly verifiers: readonly SessionVerifier[];

  constructor(channels: ChannelStore, calls: ChannelCalls, verifiers: readonly SessionVerifier[]) {
    this.channels = channels;
    this.calls = calls;
    this.verifiers = verifiers;
  }

  /**
   * What a credential that only manages a channel is answered with.
   * @returns undefined for one that asks for content, or is of no session
   * @throws Problem `payment_invalid`
   */
  async managed(presented: Presented): Promise<Response | undefined> {
    return isMpp(presented) ? this.#of(presented)?.managed(presented.credential) : undefined;
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

  #of({ rail, credential }: MppCredential): SessionVerifier | undefined {
    if (rail !== 'tempo/session') return undefined;
    const { chainId } = (credential.challenge.request.methodDetails ?? {}) as { chainId?: number };
    return this.verifiers.find(({ network }) => network.chainId === chainId);
  }
}
