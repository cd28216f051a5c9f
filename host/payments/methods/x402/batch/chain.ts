/**
 * Channels of `batch-settlement` on the chain. The host is their receiver and says itself what it takes, so all that
 * belongs together is one transaction: what it claims is in its wallet, and the rest with its payer, or neither.
 */
import { BATCH_SETTLEMENT_ADDRESS } from '@x402/evm';
import type { Logger } from 'pino';
import { type Account, encodeFunctionData, type Hex, parseAbi, parseEventLogs } from 'viem';
import type { ChannelStore, SignedAmount } from '../../../../registry/payments/channels.ts';
import type { ChannelRow } from '../../../../registry/payments/schema.ts';
import { type Money, micro } from '../../../../shared/money.ts';
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
  'event WithdrawFinalized(bytes32 indexed channelId, address indexed sender, uint128 amount)',
]);

const address = BATCH_SETTLEMENT_ADDRESS as Hex;

type Claimed = { claimAmount: bigint; newTotalClaimed: bigint };

interface Claim {
  args: Claimed;
  transactionHash: Hex;
}

interface Sent {
  hash: Hex;
  /** What it claimed of the channel. */
  claimed: Claimed | undefined;
  /** Whether it did anything: a former one that was lost sight of may have been first. */
  did: boolean;
}

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
    const voucher = await this.#options.channels.settleable(channel);
    if (voucher) await this.#collect(channel, voucher.cumulative, voucher);
  }

  async close(channel: ChannelRow): Promise<ChannelRow> {
    const { channels, log } = this.#options;
    const state = await this.state(channel.id);
    // Its payer has taken the deposit back while the host was away for longer than a withdrawal takes.
    if (channel.captured > state.deposit) return this.#closeShort(channel, state);
    const captured = micro(channel.captured);
    try {
      const claims = captured > state.settled ? await this.#claims(channel, captured) : [];
      const rest = state.deposit - (claims.length > 0 ? captured : state.settled);
      const calls = [...claims, ...(rest > 0n ? [this.#refund(channel, rest)] : [])];
      const sent = calls.length > 0 ? await this.#send(channel, calls) : undefined;
      const before = await this.#caughtUpTo(channel, captured, sent);
      const reference = sent?.did ? sent.hash : await this.#last(channel);
      await channels.settled(before, captured, reference, true);
      log.info({ channel: channel.id, captured: captured.toString() }, 'channel closed');
    } catch (error) {
      log.warn({ err: error, channel: channel.id }, 'channel could not be closed yet');
      throw new Problem('payment_pending', 'The channel could not be closed now; it is tried again by itself.', {
        cause: error,
      });
    }
    return (await channels.byId(channel.id)) ?? channel;
  }

  /** Each transaction that claimed something is in the books by itself. */
  async caughtUp(channel: ChannelRow): Promise<ChannelRow> {
    const { channels } = this.#options;
    if ((await this.state(channel.id)).settled <= channel.settled) return channel;
    let now = channel;
    for (const { args, transactionHash } of await this.#claimsSince(channel)) {
      await channels.settled(now, micro(args.newTotalClaimed), transactionHash, false);
      now = (await channels.byId(channel.id)) ?? now;
    }
    return now;
  }

  /** Whether its payer took something out. */
  async isWithdrawn(channel: ChannelRow): Promise<boolean> {
    return (await this.#event(channel, 'WithdrawFinalized')) !== undefined;
  }

  async #closeShort(channel: ChannelRow, state: ChainState): Promise<ChannelRow> {
    const { channels, log } = this.#options;
    // A node that lags behind says the same of a deposit that is there.
    if (!(await this.isWithdrawn(channel)))
      throw new Problem('payment_pending', 'The network does not know of this channel’s deposit; it is tried again.');
    if (state.deposit > channel.settled) await this.#collect(channel, micro(state.deposit));
    await channels.withdrawn(channel);
    log.error({ channel: channel.id }, 'the payer of a channel took back what it owed');
    return (await channels.byId(channel.id)) ?? channel;
  }

  async #collect(channel: ChannelRow, total: Money, voucher?: SignedAmount): Promise<void> {
    const sent = await this.#send(channel, await this.#claims(channel, total, voucher));
    const before = await this.#caughtUpTo(channel, total, sent);
    if (before.settled < total) await this.#options.channels.settled(before, total, sent.hash, false);
  }

  /** The channel with all in the books that was claimed before a transaction. */
  async #caughtUpTo(channel: ChannelRow, total: Money, sent: Sent | undefined): Promise<ChannelRow> {
    const own = sent?.claimed;
    if (total === channel.settled || (own && own.newTotalClaimed - own.claimAmount === channel.settled)) return channel;
    const now = await this.caughtUp(channel);
    if (now.settled < total) throw new Error('what claimed from the channel was not found yet');
    return now;
  }

  /** @param signed default: the greatest, for what takes no more calls */
  async #claims(
    channel: ChannelRow,
    totalClaimed: bigint,
    signed: SignedAmount = { cumulative: channel.voucher, signature: channel.voucherSignature },
  ): Promise<Hex[]> {
    await this.#options.channels.publishing(channel.id, signed);
    const config = configOf(channel);
    const voucher = { channel: config, maxClaimableAmount: signed.cumulative as bigint };
    const claims = [{ voucher, signature: signed.signature as Hex, totalClaimed }];
    return [
      encodeFunctionData({ abi: BATCH_ABI, functionName: 'claim', args: [claims] }),
      encodeFunctionData({ abi: BATCH_ABI, functionName: 'settle', args: [config.receiver, config.token] }),
    ];
  }

  #refund(channel: ChannelRow, amount: bigint): Hex {
    return encodeFunctionData({ abi: BATCH_ABI, functionName: 'refund', args: [configOf(channel), amount] });
  }

  async #send(channel: ChannelRow, calls: Hex[]): Promise<Sent> {
    const { network, receiver, lanes } = this.#options;
    const data = encodeFunctionData({ abi: BATCH_ABI, functionName: 'multicall', args: [calls] });
    const hash = await lanes.send(receiver, { to: address, data });
    const receipt = await network.getClient().waitForTransactionReceipt({ hash });
    if (receipt.status !== 'success') throw new Error(`the transaction ${hash} was reverted`);
    const done = parseEventLogs({ abi: BATCH_ABI, logs: receipt.logs, eventName: ['Claimed', 'Refunded'] }).filter(
      ({ args }) => args.channelId === channel.id,
    );
    const claim = done.find((event) => event.eventName === 'Claimed');
    return { hash, claimed: claim?.args, did: done.length > 0 };
  }

  /** The transaction that closed it; the channel's opening, where nothing was left to do. */
  async #last(channel: ChannelRow): Promise<string> {
    return (
      (await this.#event(channel, 'Refunded')) ?? (await this.#event(channel, 'Claimed')) ?? channel.openHash ?? ''
    );
  }

  /** Those that the books do not know, the oldest first; none, where one of them is missing. */
  async #claimsSince(channel: ChannelRow): Promise<Claim[]> {
    const client = this.#options.network.getClient();
    const claims: Claim[] = [];
    await searchBlocks(client, channel.createdAt, async (blocks) => {
      claims.unshift(...(await client.getContractEvents({ ...eventsOf(channel), eventName: 'Claimed', ...blocks })));
      return claims.some(({ args }) => args.newTotalClaimed - args.claimAmount <= channel.settled) || undefined;
    });
    const first = claims.findIndex(({ args }) => args.newTotalClaimed - args.claimAmount === channel.settled);
    return first === -1 ? [] : claims.slice(first);
  }

  async #event(channel: ChannelRow, eventName: 'Claimed' | 'Refunded' | 'WithdrawFinalized'): Promise<Hex | undefined> {
    const client = this.#options.network.getClient();
    return searchBlocks(client, channel.createdAt, async (blocks) => {
      const events = await client.getContractEvents({ ...eventsOf(channel), eventName, ...blocks });
      return events.at(-1)?.transactionHash;
    });
  }
}

function eventsOf({ id }: ChannelRow) {
  return { address, abi: BATCH_ABI, args: { channelId: id as Hex }, strict: true } as const;
}

function configOf(channel: ChannelRow) {
  return JSON.parse(channel.descriptor) as ReturnType<typeof inLowerCase>;
}
