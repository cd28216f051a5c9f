/**
 * Keeps channels: settles what they owe on a schedule, closes those that their payer gave up or wants back, and
 * finishes what a crash interrupted. Without it a payer could take its deposit back before the host has its share.
 */
import type { Logger } from 'pino';
import type { ChannelStore } from '../../../registry/payments/channels.ts';
import type { ChannelRow } from '../../../registry/payments/schema.ts';
import type { Clock } from '../../../shared/clock.ts';
import { type Money, micro } from '../../../shared/money.ts';
import type { ChannelKeeper } from './keeper.ts';

export interface SweepSchedule {
  /** Settle when a channel owes this much. */
  settleAmount: Money;
  /** Settle at the latest so long after the last settlement, ms. */
  settleEveryMs: number;
  /** Close a channel that was not used for so long, ms. */
  idleMs: number;
}

export const DEFAULT_SCHEDULE: SweepSchedule = {
  settleAmount: micro(5_000_000),
  settleEveryMs: 3_600_000,
  idleMs: 24 * 3_600_000,
};

/** Channels that are looked after at a time. */
const AT_ONCE = 8;
/** A channel that takes longer holds up no other: its work goes on beside theirs, ms. */
const LOOK_MS = 30_000;

/** A deposit that did not arrive so long after it was noted never will: its transaction has expired. */
const OPENING_MS = 120_000;

export class ChannelSweeper {
  readonly #keeper: ChannelKeeper;
  readonly #channels: ChannelStore;
  readonly #schedule: SweepSchedule;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #looking = new Set<string>();

  constructor(options: {
    keeper: ChannelKeeper;
    channels: ChannelStore;
    schedule?: SweepSchedule;
    clock: Clock;
    log: Logger;
  }) {
    this.#keeper = options.keeper;
    this.#channels = options.channels;
    this.#schedule = options.schedule ?? DEFAULT_SCHEDULE;
    this.#clock = options.clock;
    this.#log = options.log;
  }

  /**
   * One look at every channel that is not closed; those that their payer wants back come first.
   * @param asking whether the chain is asked of every one, too
   */
  async run(asking = true): Promise<void> {
    const { chainId, escrow } = this.#keeper.network;
    const channels = (await this.#channels.inState('opening', 'open', 'closing')).filter(
      (channel) => channel.chainId === chainId && channel.escrow === escrow,
    );
    const isUrgent = ({ state, closeRequestedAt }: ChannelRow) => state === 'closing' || closeRequestedAt !== 0;
    const queue = [...channels.filter(isUrgent), ...channels.filter((channel) => !isUrgent(channel))].values();
    const work = async () => {
      for (const { id } of queue) {
        const look = this.#lookSafely(id, asking);
        let timer: NodeJS.Timeout | undefined;
        await Promise.race([look, new Promise((resolve) => (timer = setTimeout(resolve, LOOK_MS)))]);
        clearTimeout(timer);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }

  /** One look at a time: what a look before is still at is not begun again. */
  async #lookSafely(id: string, asking: boolean): Promise<void> {
    if (this.#looking.has(id)) return;
    this.#looking.add(id);
    try {
      await this.#keeper.exclusively(id, () => this.#look(id, asking));
    } catch (error) {
      this.#log.warn({ err: error, channel: id }, 'channel could not be looked after; it is tried again');
    } finally {
      this.#looking.delete(id);
    }
  }

  async #look(id: string, asking: boolean): Promise<void> {
    const channel = await this.#channels.byId(id);
    switch (channel?.state) {
      case 'opening':
        if (await this.#keeper.confirmOpening(channel)) return;
        if (channel.usedAt + OPENING_MS < this.#clock.now())
          await this.#channels.failed(id, 'the deposit never arrived');
        return;
      case 'open':
        if (!asking && this.#keeper.isKnown?.(id)) return this.#keep(channel);
        return this.#keep(await this.#keeper.chain.caughtUp(await this.#keeper.refresh(channel)));
      case 'closing':
        await this.#keeper.close(channel);
        return;
    }
  }

  async #keep(channel: ChannelRow): Promise<void> {
    const now = this.#clock.now();
    const owed = channel.captured - channel.settled;
    const idle = channel.usedAt + this.#schedule.idleMs < now;
    const isWorth = (amount: bigint) => this.#keeper.isWorth?.(micro(amount)) ?? true;
    const isOver = channel.reserved === 0n && idle && (isWorth(owed) || isWorth(channel.deposit - channel.captured));
    if (channel.closeRequestedAt !== 0 || isOver) {
      await this.#keeper.close(channel);
    } else if (owed > 0n) {
      const since = channel.settledAt ?? channel.createdAt;
      const late = since + this.#schedule.settleEveryMs < now;
      const due = owed >= this.#schedule.settleAmount || (late && isWorth(owed));
      const { chain } = this.#keeper;
      if (due) await chain.settle(await chain.caughtUp(channel));
    }
  }
}
