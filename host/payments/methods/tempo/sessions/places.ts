/** Sessions on all networks of the host: a credential belongs to the one that its challenge, which we wrote, names. */
import type { ChannelStore } from '../../../../registry/payments/channels.ts';
import type { Presented } from '../../method.ts';
import { isMpp } from '../credential.ts';
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
    if (presented.rail !== 'tempo/session' || !isMpp(presented)) return undefined;
    const { chainId } = (presented.credential.challenge.request.methodDetails ?? {}) as { chainId?: number };
    const verifier = this.verifiers.find(({ network }) => network.chainId === chainId);
    return verifier?.managed(presented.credential);
  }
}
