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

  /**
   * A greater voucher of a channel, which pays for nothing by itself.
   * @returns undefined for a credential that is none, or is of another channel
   * @throws Problem `payment_invalid`
   */
  async noted(presented: Presented, channel: string | null): Promise<Response | undefined> {
    const verifier = isMpp(presented) ? this.#of(presented) : undefined;
    if (!verifier || !isMpp(presented)) return undefined;
    const { action, channelId } = verifier.read(presented.credential);
    return action === 'voucher' && channelId === channel ? verifier.manage(presented.credential) : undefined;
  }

  #of({ rail, credential }: MppCredential): SessionVerifier | undefined {
    if (rail !== 'tempo/session') return undefined;
    const { chainId } = (credential.challenge.request.methodDetails ?? {}) as { chainId?: number };
    return this.verifiers.find(({ network }) => network.chainId === chainId);
  }
}
