/**
 * Channels of `batch-settlement` on the chain. The host is their receiver and says itself what it takes, so all that
 * belongs together is one transaction: what it claims is in its wallet, and the rest with its payer, or neither.
 */
import { BATCH_SETTLEMENT_ADDRESS } from '@x402/evm';
import type { Logger } from 'pino';
import { type Account, encodeFunctionData, type Hex, parseAbi, parseEventLogs } from 'viem';
import { atomic, type ChannelStore } from '../../../../registry/payments/channels.ts';
import type { ChannelRow } from '../../../../registry/payments/schema.ts';
import { micro } from '../../../../shared/money.ts';
import { Problem } from '../../../../shared/problem.ts';
import type { X402Network } from '../../../network/types.ts';
import { searchBlocks } from '../../chain/search-blocks.ts';
import type { ChainState, ChannelChain } from '../../channels/keeper.ts';
import type { EvmLanes } from '../evm-lanes.ts';
import type { inLowerCase } from './voucher.ts';

export const BATCH_ABI = parseAbi([
  'struct ChannelConfig { address payer; address payerAuthorizer; address receiver; address receiverAuthorizer; address token; uint40 withdrawDelay; bytes32 salt; }',
  'struct Voucher { ChannelConfig channel; uint128 maxClaimableAmount; }',
  'struct VoucherClaim { Voucher voucher; bytes signature; uint128 totalClaimed; }',
  'function multicall(bytes[] data) returns (bytes[])',
  'function claim(VoucherClaim[] voucherClaims)',
  'function settle(address receiver, address token)',
  'function refund(ChannelConfig config, uint128 amount)',
  'function channels(bytes32 channelId) view returns (uint128 balance, uint128 totalClaimed)',
  'function pendingWithdrawals(bytes32 channelId) view returns (uint128 amount, uint40 initiatedAt)',
  'event Claimed(bytes32 indexed channelId, address indexed sender, uint128 claimAmount, uint128 newTotalClaimed)',
  'event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount)',
]);

const address = BATCH_SETTLEMENT_ADDRESS as Hex;

export interface BatchChainOptions {
  network: X402Network;
  /** Receives what channels pay, and pays the gas. */
  receiver: Account;
  lanes: EvmLanes;
  channels: ChannelStore;
  log: Logger;
}

export class BatchChain implements ChannelChain {
  readonly #options: BatchChainOptions;

  constructor(options: BatchChainOptions) {
    this.#options = options;
  }

  async state(id: string): Promise<ChainState> {
    const client = this.#options.network.getClient();
    const read = { address, abi: BATCH_ABI, args: [id as Hex] } as const;
    const [[deposit, settled], [, closeRequestedAt]] = await Promise.all([
      client.readContract({ ...read, functionName: 'channels' }),
      client.readContract({ ...read, functionName: 'pendingWithdrawals' }),
    ]);
    // Whatever else is in a channel its payer can take out.
    return { deposit, settled, closeRequestedAt, left: 0n };
  }

  async settle(channel: ChannelRow): Promise<void> {
    const { channels } = this.#options;
    const total = await channels.answered(channel);
    if (total <= channel.settled) return;
    const transaction = await this.#send(channel, 'Claimed', this.#claims(channel, total));
    await channels.settled(channel, total, transaction, false);
  }

  async close(channel: ChannelRow): Promise<ChannelRow> {
    const { channels, log } = this.#options;
    const state = await this.state(channel.id);
    // Its payer has taken the deposit back while the host was away for longer than a withdrawal takes.
    if (channel.captured > state.deposit) return this.#closeShort(channel, state);
    const captured = micro(channel.captured);
    try {
      const isClaimed = captured <= state.settled;
      const rest = state.deposit - (isClaimed ? state.settled : captured);
      const claims = isClaimed ? [] : this.#claims(channel, captured);
      const calls = [...claims, ...(rest > 0n ? [this.#refund(channel, rest)] : [])];
      // What was claimed in a close that was begun, too: the process may have died before the books said so.
      const sought = captured > channel.settled ? 'Claimed' : 'Refunded';
      const transaction =
        calls.length > 0 ? await this.#send(channel, sought, calls) : await this.#last(channel, sought);
      await channels.settled(channel, captured, transaction, true);
      log.info({ channel: channel.id, captured: captured.toString() }, 'channel closed');
    } catch (error) {
      log.warn({ err: error, channel: channel.id }, 'channel could not be closed yet');
      throw new Problem('payment_pending', 'The channel could not be closed now; it is tried again by itself.', {
        cause: error,
      });
    }
    return (await channels.byId(channel.id)) ?? channel;
  }

  async caughtUp(channel: ChannelRow): Promise<ChannelRow> {
    const { channels } = this.#options;
    const settled = atomic((await this.state(channel.id)).settled);
    if (settled <= channel.settled) return channel;
    const transaction = await this.#event(channel, 'Claimed');
    if (transaction !== undefined) await channels.settled(channel, settled, transaction, false);
    return (await channels.byId(channel.id)) ?? channel;
  }

  async #closeShort(channel: ChannelRow, state: ChainState): Promise<ChannelRow> {
    const { channels, log } = this.#options;
    if (state.deposit > channel.settled) {
      const transaction =
        state.deposit > state.settled
          ? await this.#send(channel, 'Claimed', this.#claims(channel, state.deposit))
          : await this.#last(channel, 'Claimed');
      await channels.settled(channel, micro(state.deposit), transaction, false);
    }
    await channels.withdrawn(channel);
    log.error({ channel: channel.id }, 'the payer of a channel took back what it owed');
    return (await channels.byId(channel.id)) ?? channel;
  }

  #claims(channel: ChannelRow, totalClaimed: bigint): Hex[] {
    const config = configOf(channel);
    const voucher = { channel: config, maxClaimableAmount: channel.voucher as bigint };
    const claims = [{ voucher, signature: channel.voucherSignature as Hex, totalClaimed }];
    return [
      encodeFunctionData({ abi: BATCH_ABI, functionName: 'claim', args: [claims] }),
      encodeFunctionData({ abi: BATCH_ABI, functionName: 'settle', args: [config.receiver, config.token] }),
    ];
  }

  #refund(channel: ChannelRow, amount: bigint): Hex {
    return encodeFunctionData({ abi: BATCH_ABI, functionName: 'refund', args: [configOf(channel), amount] });
  }

  /** @returns the transaction that did what is sought: a former one that was lost sight of may have been first */
  async #send(channel: ChannelRow, sought: 'Claimed' | 'Refunded', calls: Hex[]): Promise<string> {
    const { network, receiver, lanes } = this.#options;
    const data = encodeFunctionData({ abi: BATCH_ABI, functionName: 'multicall', args: [calls] });
    const hash = await lanes.send(receiver, { to: address, data });
    const receipt = await network.getClient().waitForTransactionReceipt({ hash });
    if (receipt.status !== 'success') throw new Error(`the transaction ${hash} was reverted`);
    const done = parseEventLogs({ abi: BATCH_ABI, logs: receipt.logs, eventName: sought });
    return done.some(({ args }) => args.channelId === channel.id) ? hash : this.#last(channel, sought);
  }

  /** The last transaction that did it; the channel's opening, where there is none. */
  async #last(channel: ChannelRow, sought: 'Claimed' | 'Refunded'): Promise<string> {
    return (await this.#event(channel, sought)) ?? channel.openHash ?? '';
  }

  async #event(channel: ChannelRow, eventName: 'Claimed' | 'Refunded'): Promise<Hex | undefined> {
    const client = this.#options.network.getClient();
    return searchBlocks(client, channel.createdAt, async (blocks) => {
      const args = { channelId: channel.id as Hex };
      const logs = await client.getContractEvents({
        address,
        abi: BATCH_ABI,
        eventName,
        args,
        strict: true,
        ...blocks,
      });
      return logs.at(-1)?.transactionHash;
    });
  }
}

function configOf(channel: ChannelRow) {
  return JSON.parse(channel.descriptor) as ReturnType<typeof inLowerCase>;
}
