/**
 * Stops what the host sends when the books break a rule, until the operator has looked. Payments are still taken: they
 * bring money in. Kept in the registry, so that a restart does not send what a check has stopped.
 */
import type { Logger } from 'pino';
import type { Registry } from '../../registry/index.ts';
import { INVARIANTS, type Invariant, type Violation } from '../../registry/payments/invariants.ts';
import { readSetting, savedSetting } from '../../registry/settings.ts';
import { Mutex } from '../../shared/mutex.ts';
import type { StoppedPayouts } from '../types.ts';

const NAME = 'payments-stopped';

interface Kept {
  /** Undefined: money is sent. */
  stopped: { at: number; violations: Violation[] } | undefined;
  /** What the operator has looked at, for as long as it lasts. */
  accepted: Invariant[];
}

export class Guard {
  readonly #registry: Registry;
  readonly #check: (signal?: AbortSignal) => Promise<Violation[]>;
  readonly #turns = new Mutex();
  readonly #log: Logger;
  #kept: Kept | undefined;
  #isChecked = false;

  /** @param check what is wrong with the books now */
  constructor(registry: Registry, check: (signal?: AbortSignal) => Promise<Violation[]>, log: Logger) {
    this.#registry = registry;
    this.#check = check;
    this.#log = log;
  }

  /** Must be called before anything is sent. */
  async load(): Promise<void> {
    this.#kept = keptOf(await readSetting(this.#registry.db, NAME));
  }

  /** Another node may have stopped, or gone on, since: nothing is sent before this one has looked. */
  async begin(): Promise<void> {
    this.#isChecked = false;
    await this.load();
  }

  get #state(): Kept {
    if (!this.#kept) throw new Error('whether payouts are stopped is not known yet');
    return this.#kept;
  }

  /** Not before the first look at the books. */
  get maySend(): boolean {
    return this.#isChecked && this.#state.stopped === undefined;
  }

  stopped(): StoppedPayouts | undefined {
    const { stopped } = this.#kept ?? {};
    return (
      stopped && {
        since: stopped.at,
        violations: stopped.violations.map(({ invariant, about }) => ({
          invariant,
          what: INVARIANTS[invariant],
          about,
        })),
        command: 'turnpike payments resume',
      }
    );
  }

  /** A look at the books, unless one was had since `begin`. @throws the reason of `signal`, when it is given up */
  async checked(signal?: AbortSignal): Promise<void> {
    if (this.#isChecked) return;
    await this.#turns.run(async () => {
      if (!this.#isChecked) await this.#look(signal);
    });
  }

  /** @throws the reason of `signal`, when it is given up */
  run(signal?: AbortSignal): Promise<void> {
    return this.#turns.run(() => this.#look(signal));
  }

  async #look(signal: AbortSignal | undefined): Promise<void> {
    const violations = await this.#check(signal);
    const { added, after } = judged(this.#state, violations);
    if (after === undefined) {
      this.#isChecked = true;
      return;
    }
    if (added.length > 0)
      this.#log.error(
        { violations: added },
        'the books break a rule: payouts and refunds are stopped; look at: turnpike payments',
      );
    // Stopped at once, also where it cannot be written.
    this.#isChecked = false;
    if (after.stopped) this.#kept = after;
    await this.#change((kept) => judged(kept, violations).after);
    this.#isChecked = true;
  }

  /** The operator has looked: money is sent again, until a rule of another kind is broken. */
  resume(): Promise<void> {
    return this.#turns.run(() => this.#resume());
  }

  async #resume(): Promise<void> {
    const { stopped, accepted } = this.#state;
    if (!stopped) return;
    const looked = stopped.violations.map(({ invariant }) => invariant);
    this.#log.warn({ accepted: looked }, 'the operator lets payouts and refunds go on');
    await this.#change((kept) => {
      // What another node has found meanwhile, nobody has looked at.
      const found = kept.stopped?.violations.filter(({ invariant }) => !looked.includes(invariant)) ?? [];
      return {
        stopped: kept.stopped && found.length > 0 ? { at: kept.stopped.at, violations: found } : undefined,
        accepted: [...new Set([...accepted, ...kept.accepted, ...looked])],
      };
    });
  }

  /** From what is kept by now: other nodes change it, too. */
  async #change(change: (kept: Kept) => Kept | undefined): Promise<void> {
    this.#kept = await this.#registry.db.transaction(async (tx) => {
      const kept = keptOf(await readSetting(tx, NAME));
      const next = change(kept);
      if (next) await savedSetting(tx, NAME, JSON.stringify(next));
      return next ?? kept;
    });
  }
}

function keptOf(text: string | undefined): Kept {
  return text === undefined ? { stopped: undefined, accepted: [] } : (JSON.parse(text) as Kept);
}

/** @returns what is new, and what is kept then; undefined: as it is */
function judged(before: Kept, violations: Violation[]): { added: Violation[]; after: Kept | undefined } {
  const accepted = before.accepted.filter((one) => violations.some(({ invariant }) => invariant === one));
  const known = before.stopped?.violations ?? [];
  const added = violations.filter(
    ({ invariant }) => !accepted.includes(invariant) && !known.some((one) => one.invariant === invariant),
  );
  if (added.length === 0 && accepted.length === before.accepted.length) return { added, after: undefined };
  const stopped =
    added.length === 0 ? before.stopped : { at: before.stopped?.at ?? Date.now(), violations: [...known, ...added] };
  return { added, after: { stopped, accepted } };
}
