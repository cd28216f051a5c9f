/** What every method whose payers deposit into channels does with them, however its escrow works. */
import type { ChannelStore } from '../../../registry/payments/channels.ts';
import type { ChannelRow } from '../../../registry/payments/schema.ts';
import type { Money } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import type { ChannelCalls } from './calls.ts';

/** How long a close waits for the calls that it ended, ms. */
const END_CALLS_MS = 10_000;

/** A channel as the chain has it. */
export interface ChainState {
  /** What its payer has put in. */
  deposit: bigint;
  /** What was taken out for the host so far. */
  settled: bigint;
  /** Not 0: its payer wants it back. */
  closeRequestedAt: number;
  /** What an escrow keeps of a closed channel that the host would have to return. Default: the deposit. */
  left?: bigint;
}

export interface ChannelChain {
  state(id: string): Promise<ChainState>;
  /** Takes what was captured so far without closing. */
  settle(channel: ChannelRow): Promise<void>;
  /** Takes what was captured, and gives the rest back. @throws Problem `payment_pending` */
  close(channel: ChannelRow): Promise<ChannelRow>;
  /** The channel with what was settled and not noted: its process died, or got no answer. */
  caughtUp(channel: ChannelRow): Promise<ChannelRow>;
}

export interface ChannelKeeper {
  /** Of which chain and escrow its channels are. */
  readonly network: { readonly chainId: number; readonly escrow: string };
  readonly chain: ChannelChain;
  /** With the channel's lock held: for settlement and recovery. */
  exclusively<T>(id: string, work: () => Promise<T>): Promise<T>;
  /** Asks the chain whether a noted deposit arrived. @returns whether the channel is open now */
  confirmOpening(channel: ChannelRow): Promise<boolean>;
  /** The channel with what the chain says of it. @throws Problem `payment_invalid` */
  refresh(channel: ChannelRow): Promise<ChannelRow>;
  /** With the channel's lock held. @throws Problem `in_progress`, `payment_pending` */
  close(channel: ChannelRow): Promise<ChannelRow>;
  /** Whether the chain's word on it is known well enough for now. Default: never. */
  isKnown?(id: string): boolean;
  /** Whether moving so much is worth what it costs. Default: always. */
  isWorth?(amount: Money): boolean;
}

/**
 * Closes a channel, with its lock held: calls that are still at work are given up and not charged, what was captured
 * is collected, the rest goes back to the payer.
 * @throws Problem `in_progress` where a call does not end, `payment_pending` where the chain does not take it now
 */
export async function closeChannel(
  { id }: Pick<ChannelRow, 'id'>,
  { channels, calls, chain }: { channels: ChannelStore; calls: ChannelCalls; chain: ChannelChain },
): Promise<ChannelRow> {
  await channels.closing(id);
  await calls.end(id, new Problem('conflict', 'The payer closes the session. Nothing was charged.'), END_CALLS_MS);
  const noted = await channels.byId(id);
  if (!noted) throw new Problem('payment_invalid', 'The channel is not known here.');
  const channel = await chain.caughtUp(noted);
  if (channel.reserved > 0n) {
    await chain.settle(channel);
    throw new Problem('in_progress', 'Calls on this channel are still at work; it is closed by itself when they end.');
  }
  return chain.close(channel);
}
