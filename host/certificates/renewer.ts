/**
 * Renews certificates: obtains one for every served name, renews it after two thirds of its lifetime, backs off after
 * failures, and deletes those of names that are no longer served. Of several nodes one does that at a time; all of them
 * know what there is.
 */
import { X509Certificate } from 'node:crypto';
import type { Logger } from 'pino';
import { LeaseLost } from '../registry/fences.ts';
import { certificateFile } from '../shared/certificate-folder.ts';
import type { Clock } from '../shared/clock.ts';
import { type Authority, AuthorityError } from './authority.ts';
import { type CertificateState, dueAt, nextTry } from './schedule.ts';
import { type CertificateStore, failureFile, orderFile, subjectOf } from './store.ts';

export interface RenewerDeps {
  /** Holds `<name>.pem` (key and chain) and `<name>.json` (failures). */
  store: CertificateStore;
  /** Does the work where this process is the one that may order; another node does it otherwise. */
  turn(work: () => Promise<void>): Promise<unknown>;
  authority: Authority;
  clock: Clock;
  log: Logger;
  /** Names to have certificates for: verified ones only. `*.` at the start for a wildcard. */
  wanted(): Promise<string[]>;
  /** Tells the edges that the certificate of a name is another, or gone. */
  changed(name: string): Promise<void>;
  /** A certificate was obtained, or could not be. */
  outcome(name: string, state: CertificateState): Promise<void>;
}

const CHECK_MS = 60_000;
const AT_ONCE = 2;
/** Shortest time between two certificates for one name, ms. */
const AGAIN_MS = 3_600_000;

export class CertificateRenewer {
  readonly #deps: RenewerDeps;
  readonly #states = new Map<string, CertificateState>();
  #timer: NodeJS.Timeout | undefined;
  #unsubscribe: (() => void) | undefined;
  #running: Promise<unknown> | undefined;
  #again = false;
  #stopped = false;

  constructor(deps: RenewerDeps) {
    this.#deps = deps;
  }

  async start(): Promise<void> {
    const { store, log } = this.#deps;
    for (const file of await store.names()) {
      if (!subjectOf(file)) continue;
      const text = await store.read(file).catch((err: unknown) => {
        log.warn({ file, err }, 'a file among the certificates cannot be read');
        return undefined;
      });
      this.learn(file, text);
    }
    this.#timer = setInterval(() => this.wake(), CHECK_MS);
    this.#timer.unref();
    this.#unsubscribe = this.#deps.clock.onStep(() => this.wake());
    this.wake();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    this.#unsubscribe?.();
    await this.#running;
  }

  /** The wanted names may have changed. */
  wake(): void {
    if (this.#stopped) return;
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#running = this.#deps
      .turn(() => this.#round())
      .catch((error: unknown) => {
        if (isLeaseLost(error)) return;
        this.#deps.log.error({ err: error }, 'certificate renewal failed; it will be retried');
      })
      .finally(() => {
        this.#running = undefined;
        if (this.#again) {
          this.#again = false;
          this.wake();
        }
      });
  }

  /** Resolves when everything that is due now was tried. */
  async settled(): Promise<void> {
    while (this.#running) await this.#running;
  }

  /** Whether a valid certificate for the name is there. */
  has(name: string): boolean {
    const { validTo } = this.#states.get(name) ?? {};
    return validTo !== undefined && validTo > this.#deps.clock.now();
  }

  status(name: string): CertificateState | undefined {
    return this.#states.get(name);
  }

  list(): CertificateState[] {
    return [...this.#states.values()];
  }

  /** Tries a name now, ignoring the pause after its last failures. */
  retry(name: string): void {
    const state = this.#states.get(name);
    if (state) state.nextTryAt = undefined;
    this.wake();
  }

  async #round(): Promise<void> {
    const { wanted, clock } = this.#deps;
    const names = new Set(await wanted());
    for (const name of this.#states.keys()) if (!names.has(name)) await this.#forget(name);
    const due = [...names].filter((name) => dueAt(this.#state(name), clock.now()) <= clock.now());
    const next = due.values();
    const ends = await Promise.allSettled(
      Array.from({ length: AT_ONCE }, async () => {
        for (const name of next) if (!this.#stopped) await this.#obtain(name);
      }),
    );
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed) throw failed.reason;
  }

  async #obtain(name: string): Promise<void> {
    const { authority, clock, wanted, changed, outcome, log, store } = this.#deps;
    // The round may be long; a name that was detached meanwhile is not asked for.
    if (!(await wanted()).includes(name)) return;
    const state = this.#state(name);
    try {
      const pem = await authority.issue(name);
      // Before it takes the place of one that serves.
      const times = validity(pem);
      await store.write(certificateFile(name), pem);
      // One that is due again at once, as short or old ones are, is not asked for every minute.
      Object.assign(state, times, { failures: 0, reason: undefined, nextTryAt: clock.now() + AGAIN_MS });
      await store.remove(failureFile(name), orderFile(name));
      log.info({ name, validTo: new Date(state.validTo ?? 0).toISOString() }, 'certificate obtained');
      await changed(name);
    } catch (error) {
      // Another node goes on with it.
      if (isLeaseLost(error)) throw error;
      state.failures += 1;
      state.reason = error instanceof Error ? error.message : String(error);
      const retryAfterMs = error instanceof AuthorityError ? error.retryAfterMs : 0;
      state.nextTryAt = nextTry(state.failures, clock.now(), retryAfterMs);
      log.warn({ name, reason: state.reason, nextTryAt: new Date(state.nextTryAt).toISOString() }, 'no certificate');
      const { failures, reason, nextTryAt } = state;
      // Kept, so that a restart does not knock at once on a door that was just shut.
      await store
        .write(failureFile(name), JSON.stringify({ failures, reason, nextTryAt }))
        .catch((err: unknown) => log.warn({ name, err }, 'a failure to obtain a certificate could not be noted'));
    }
    await outcome(name, { ...state });
  }

  async #forget(name: string): Promise<void> {
    const { store, changed } = this.#deps;
    await store.remove(certificateFile(name), failureFile(name), orderFile(name));
    this.#states.delete(name);
    await changed(name);
  }

  /** What the store has under a name now, which another node may have put there. @param text undefined: it is gone */
  learn(file: string, text: string | undefined): void {
    const { name, is } = subjectOf(file) ?? {};
    if (name === undefined) return;
    try {
      if (is === 'certificate') Object.assign(this.#state(name), text === undefined ? NO_CERTIFICATE : validity(text));
      else Object.assign(this.#state(name), text === undefined ? NO_FAILURE : failure(text));
    } catch (error) {
      this.#deps.log.warn({ file, err: error }, 'a file among the certificates cannot be read');
    }
    const { validTo, failures } = this.#state(name);
    if (validTo === undefined && failures === 0) this.#states.delete(name);
  }

  #state(name: string): CertificateState {
    let state = this.#states.get(name);
    if (!state) {
      state = emptyState(name);
      this.#states.set(name, state);
    }
    return state;
  }
}

/** The lease of whoever orders, told in another error's cause, too. */
function isLeaseLost(error: unknown): boolean {
  return error instanceof LeaseLost || (error instanceof Error && isLeaseLost(error.cause));
}

const NO_CERTIFICATE = { validFrom: undefined, validTo: undefined };
const NO_FAILURE = { failures: 0, reason: undefined };

function emptyState(name: string): CertificateState {
  return { name, ...NO_CERTIFICATE, ...NO_FAILURE, nextTryAt: undefined };
}

function validity(pem: string): Pick<CertificateState, 'validFrom' | 'validTo'> {
  const certificate = new X509Certificate(pem.slice(pem.indexOf('-----BEGIN CERTIFICATE')));
  return { validFrom: Date.parse(certificate.validFrom), validTo: Date.parse(certificate.validTo) };
}

function failure(text: string): Pick<CertificateState, 'failures' | 'reason' | 'nextTryAt'> {
  const { failures, reason, nextTryAt } = JSON.parse(text) as Record<string, unknown>;
  return { failures: Number(failures) || 0, reason: String(reason ?? ''), nextTryAt: Number(nextTryAt) || 0 };
}
