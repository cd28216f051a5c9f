/** Channels on the chain: reading them, and collecting what they owe with or without closing them. */
import { Session } from 'mppx/tempo';
import type { Logger } from 'pino';
import type { Account, Hex } from 'viem';
import { getContractEvents } from 'viem/actions';
import type { Leases } from '../../../../registry/leases.ts';
import { atomic, type ChannelStore } from '../../../../registry/payments/channels.ts';
import type { ChannelRow } from '../../../../registry/payments/schema.ts';
import { Problem } from '../../../../shared/problem.ts';
import type { MppNetwork } from '../../../network/types.ts';
import { searchBlocks } from '../../chain/search-blocks.ts';
import type { ChannelChain } from '../../channels/keeper.ts';

const { Chain, escrowAbi, Protocol } = Session.Precompile;

export interface SessionChainOptions {
  network: MppNetwork;
  /** The wallet that channels pay, and that closes them. */
  settler: Account;
  channels: ChannelStore;
  leases: Leases;
  log: Logger;
}

export class SessionChain implements ChannelChain {
  readonly #options: SessionChainOptions;

  constructor(options: SessionChainOptions) {
    this.#options = options;
  }

  state(id: string) {
    return Chain.getChannelState(this.#options.network.getClient(), id as Hex, Protocol.tip20ChannelEscrow);
  }

  /**
   * Closes a channel that takes no more calls on the chain: what was captured goes to the host, the rest back to the payer. It presents the
   * voucher that calls were served for. One that comes with the wish to close adds nothing, and may not be collectable.
   */
  close({ id }: ChannelRow): Promise<ChannelRow> {
    return this.#inTurn(id, (channel) => this.#close(channel));
  }

  /** Takes what was captured so far without closing. */
  settle({ id }: ChannelRow): Promise<void> {
    return this.#inTurn(id, (channel) => this.#settle(channel));
  }

  /** What the process that settled died before it could note. */
  async caughtUp(channel: ChannelRow): Promise<ChannelRow> {
    if (atomic((await this.state(channel.id)).settled) <= channel.settled) return channel;
    return this.#inTurn(channel.id, async (now) => {
      const settled = atomic((await this.state(now.id)).settled);
      const event = settled > now.settled ? await this.#lastEvent(now, 'Settled') : undefined;
      if (!event) return now;
      const { channels } = this.#options;
      await channels.settled(now, settled, event.transactionHash, false);
      return (await channels.byId(now.id)) ?? now;
    });
  }

  /**
   * The chain has closed a channel that is open in the books. Its payer took the deposit back; or this host closed it, and
   * its books came back from a backup of before.
   */
  ended({ id }: ChannelRow): Promise<boolean> {
    return this.#inTurn(id, async (now) => now.state === 'open' && this.#ended(now));
  }

  /** @returns whether it was found on the chain */
  async #ended(channel: ChannelRow): Promise<boolean> {
    const { channels } = this.#options;
    const closed = await this.#lastEvent(channel, 'ChannelClosed');
    if (!closed) return false;
    const paid = 'settledToPayee' in closed.args ? closed.args.settledToPayee : 0n;
    if (paid < channel.captured) await channels.withdrawn(channel);
    else if (channel.reserved === 0n) await channels.settled(channel, channel.captured, closed.transactionHash, true);
    return true;
  }

  async #close(channel: ChannelRow): Promise<ChannelRow> {
    const { channels, log } = this.#options;
    // Somebody else had the turn before.
    if (channel.state === 'closed') return channel;
    // A close that was begun may be on the chain already: the process may have died before the books said so. Or its
    // payer was quicker, and took the deposit back.
    if (channel.state === 'closing' && (await this.state(channel.id)).deposit === 0n) {
      if (!(await this.#ended(channel)))
        throw new Problem('payment_pending', 'The channel is gone from the chain; its closing was not found yet.');
      return (await channels.byId(channel.id)) ?? channel;
    }
    try {
      await channels.publishing(channel.id, { cumulative: channel.voucher });
      const hash = await this.#sent((client, options) =>
        Chain.closeOnChain(
          client,
          JSON.parse(channel.descriptor),
          channel.voucher,
          channel.captured,
          channel.voucherSignature as Hex,
          channel.escrow as Hex,
          options,
        ),
      );
      await channels.settled(channel, channel.captured, hash, true);
      log.info({ channel: channel.id, captured: channel.captured.toString() }, 'channel closed');
    } catch (error) {
      log.warn({ err: error, channel: channel.id }, 'channel could not be closed yet');
      // What older vouchers cover is collected meanwhile, so that less is left to lose.
      await this.#settle(channel).catch((reason) => log.warn({ err: reason, channel: channel.id }, 'nor settled'));
      throw new Problem('payment_pending', 'The channel could not be closed now; it is tried again by itself.', {
        cause: error,
      });
    }
    return (await channels.byId(channel.id)) ?? channel;
  }

  async #settle(channel: ChannelRow): Promise<void> {
    const { channels } = this.#options;
    const voucher = await channels.settleable(channel);
    if (!voucher) return;
    await channels.publishing(channel.id, voucher);
    const hash = await this.#sent((client, options) =>
      Chain.settleOnChain(
        client,
        JSON.parse(channel.descriptor),
        voucher.cumulative,
        voucher.signature as Hex,
        channel.escrow as Hex,
        options,
      ),
    );
    await channels.settled(channel, voucher.cumulative, hash, false);
  }

  /** The last time that a channel was closed or settled on the chain, by whom ever. */
  async #lastEvent(channel: ChannelRow, eventName: 'ChannelClosed' | 'Settled') {
    const client = this.#options.network.getClient();
    return searchBlocks(client, channel.createdAt, async (blocks) => {
      const logs = await getContractEvents(client, {
        address: channel.escrow as Hex,
        abi: escrowAbi,
        eventName,
        args: { channelId: channel.id as Hex },
        strict: true,
        ...blocks,
      });
      return logs.at(-1);
    });
  }

  /**
   * The settler's transactions go out one after the other, for they count up one nonce: each from what the books say of its
   * channel to what they say then. No other node finds on the chain what the books are about to say.
   */
  #inTurn<T>(id: string, work: (channel: ChannelRow) => Promise<T>): Promise<T> {
    const { network, settler, leases, channels } = this.#options;
    return leases.exclusively(`channels:${network.chain.id}:${settler.address.toLowerCase()}`, async () => {
      const channel = await channels.byId(id);
      if (!channel) throw new Error(`there is no channel ${id}`);
      return work(channel);
    });
  }

  async #sent(
    send: (
      client: ReturnType<MppNetwork['getClient']>,
      options: { account: Account; candidateFeeTokens: Hex[] },
    ) => Promise<Hex>,
  ): Promise<Hex> {
    const { network, settler } = this.#options;
    const client = network.getClient(settler);
    const hash = await send(client, { account: settler, candidateFeeTokens: [network.currency] });
    await Chain.waitForSuccessfulReceipt(client as never, hash);
    return hash;
  }
}
