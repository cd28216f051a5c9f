/** The timed work of payments: pending settlements, what is owed, channels, holds that run out, old answers. */
import type { Logger } from 'pino';
import type { TrustedClock } from '../registry/trusted-clock.ts';
import type { Clock } from '../shared/clock.ts';
import type { Guard } from './ledger/guard.ts';
import type { ChannelSweeper } from './methods/channels/sweeper.ts';
import type { Gas } from './methods/x402/gas.ts';
import type { RemoteFacilitator } from './methods/x402/remote-facilitator.ts';
import { MONEY, type Sender } from './outgoing/sender.ts';
import { type RecoveryOptions, recoverLeft } from './settlement/recovery.ts';

/** Refunds go this often at least, ms. */
const REFUND_MS = 1_000;
/** A hold whose signature runs out within this time is settled, so that the tenant can still capture it, ms. */
const HOLD_MARGIN_MS = 1_500;
/** A hold that was settled and then forgotten goes back to its payer, ms. */
const FORGOTTEN_HOLD_MS = 24 * 3_600_000;
/** How often the books are checked, ms. */
const CHECK_MS = 60_000;
/** How often a facilitator elsewhere is asked what it settles, ms. */
const FACILITATOR_MS = 30_000;
const KEEP_ANSWERS_MS = 24 * 3_600_000;

export interface BackgroundOptions extends RecoveryOptions {
  sender: Sender;
  /** Of each network with channels. */
  sweepers: readonly ChannelSweeper[];
  guard: Guard;
  gas: Gas;
  /** Of each network that a facilitator elsewhere settles on. */
  remotes: readonly RemoteFacilitator[];
  /** How often payouts and the operator's share are sent, ms; refunds go at once. */
  payoutEveryMs: number;
  /** By which money goes back, and what was answered is forgotten. */
  trustedClock: TrustedClock;
  clock: Clock;
  log: Logger;
}

export class Background {
  readonly #options: BackgroundOptions;
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #stopping = new AbortController();
  readonly #running = new Set<Promise<void>>();

  constructor(options: BackgroundOptions) {
    this.#options = options;
  }

  start(): void {
    const { sender, sweepers, guard, gas, remotes, payoutEveryMs, machine, trustedClock, clock } = this.#options;
    const { leases } = machine.store;
    const { signal } = this.#stopping;
    const look = async (how: 'run' | 'checked') => {
      await leases
        .run(MONEY, () => guard[how](signal))
        .catch((error) => {
          if (!signal.aborted) throw error;
        });
    };
    const send = async (kinds?: Parameters<Sender['run']>[0]) => {
      await look('checked');
      await sender.run(kinds);
    };
    // What a crash left unsent goes as soon as the books were looked at.
    this.#every(
      CHECK_MS,
      () => look('run'),
      () => send(),
    );
    this.#every(1_000, () => leases.run(MONEY, () => this.#holds()));
    this.#every(2_000, async () => {
      await leases.run(MONEY, () => machine.store.takeOver());
      await recoverLeft(this.#options);
    });
    this.#every(payoutEveryMs, () => send());
    // Where all goes so often, refunds do, too.
    if (payoutEveryMs > REFUND_MS) this.#every(REFUND_MS, () => send(['refund']));
    this.#every(60_000, () => gas.refresh());
    for (const remote of remotes) this.#every(FACILITATOR_MS, () => remote.refresh());
    for (const sweeper of sweepers) this.#every(60_000, () => leases.run(MONEY, () => sweeper.run(false)));
    this.#every(600_000, async () => {
      // By a clock that was set back nothing is over that was by the former one.
      const over = Math.min((await trustedClock.highest()) - clock.offsetMs, Date.now());
      await machine.store.answers.sweep(KEEP_ANSWERS_MS);
      await leases.run(MONEY, async () => machine.keys.sweep(KEEP_ANSWERS_MS, await trustedClock.now(), over));
    });
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#stopping.abort();
    await Promise.allSettled(this.#running);
    await this.#options.machine.idle();
  }

  /**
   * Never two rounds of the same work at once.
   * @param first at once; default: the first round begins when `ms` have passed
   */
  #every(ms: number, work: () => Promise<unknown>, first?: () => Promise<unknown>): void {
    let busy = false;
    const begin = (what: () => Promise<unknown>) => {
      if (busy) return;
      busy = true;
      const round = what()
        .then(() => undefined)
        .catch((error) => this.#options.log.error({ err: error }, 'timed work of payments failed'))
        .finally(() => {
          busy = false;
          this.#running.delete(round);
        });
      this.#running.add(round);
    };
    if (first) begin(first);
    const timer = setInterval(begin, ms, work);
    timer.unref();
    this.#timers.push(timer);
  }

  /** Holds of tenants: settled when their signature runs out, given back when nobody captures them. */
  async #holds(): Promise<void> {
    const { machine, trustedClock } = this.#options;
    const { queries } = machine.store;
    const due = await queries.endingHolds(Date.now() + HOLD_MARGIN_MS);
    for (const row of due) {
      await machine.exclusively(row, async () => {
        const current = await machine.store.byId(row.id);
        if (current?.state !== 'working') return;
        if (current.custody === 'collected') await machine.takeEarly(current).catch(() => undefined);
        else await machine.release(current, 'the hold ran out');
      });
    }
    const forgotten = await queries.settledHolds((await trustedClock.now()) - FORGOTTEN_HOLD_MS);
    for (const row of forgotten) {
      if (row.charged === null)
        await machine.exclusively(
          row,
          async () => void (await machine.store.refunds.owe(row, 'the hold was forgotten')),
        );
    }
  }
}
