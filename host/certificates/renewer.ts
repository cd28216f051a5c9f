/**
 * Renews certificates: obtains one for every served name, renews it after two thirds of its lifetime, backs off after
 * failures, and deletes those of names that are no longer served. One folder holds them, one file per name.
 */
import { X509Certificate } from 'node:crypto';
import { readdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import { certificateFile } from '../shared/certificate-folder.ts';
import type { Clock } from '../shared/clock.ts';
import { writePrivateFile } from '../shared/private-file.ts';
import { type Authority, AuthorityError } from './authority.ts';
import { type CertificateState, dueAt, nextTry } from './schedule.ts';

export interface RenewerDeps {
  /** Holds `<name>.pem` (key and chain) and `<name>.json` (failures). */
  folder: string;
  authority: Authority;
  clock: Clock;
  log: Logger;
  /** Names to have certificates for: verified ones only. `*.` at the start for a wildcard. */
  wanted(): Promise<string[]>;
  /** Tells the edges that a file in the folder changed. */
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
  /** Certificates that were issued but could not be saved: authorities issue only a few per name and week. */
  readonly #unsaved = new Map<string, string>();
  #timer: NodeJS.Timeout | undefined;
  #unsubscribe: (() => void) | undefined;
  #running: Promise<void> | undefined;
  #again = false;
  #stopped = false;

  constructor(deps: RenewerDeps) {
    this.#deps = deps;
  }

  async start(): Promise<void> {
    await this.#load();
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
    this.#running = this.#round()
      .catch((error: unknown) => this.#deps.log.error({ err: error }, 'certificate renewal failed; it will be retried'))
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
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        for (const name of next) if (!this.#stopped) await this.#obtain(name);
      }),
    );
  }

  async #obtain(name: string): Promise<void> {
    const { authority, clock, wanted, changed, outcome, log, folder } = this.#deps;
    // The round may be long; a name that was detached meanwhile is not asked for.
    if (!(await wanted()).includes(name)) return;
    const state = this.#state(name);
    try {
      const pem = this.#unsaved.get(name) ?? (await authority.issue(name));
      // Before it takes the place of one that serves.
      const times = validity(pem);
      this.#unsaved.set(name, pem);
      await writePrivateFile(path.join(folder, certificateFile(name)), pem);
      this.#unsaved.delete(name);
      // One that is due again at once, as short or old ones are, is not asked for every minute.
      Object.assign(state, times, { failures: 0, reason: undefined, nextTryAt: clock.now() + AGAIN_MS });
      await rm(this.#failureFile(name), { force: true });
      log.info({ name, validTo: new Date(state.validTo ?? 0).toISOString() }, 'certificate obtained');
      await changed(name);
    } catch (error) {
      state.failures += 1;
      state.reason = error instanceof Error ? error.message : String(error);
      const retryAfterMs = error instanceof AuthorityError ? error.retryAfterMs : 0;
      state.nextTryAt = nextTry(state.failures, clock.now(), retryAfterMs);
      log.warn({ name, reason: state.reason, nextTryAt: new Date(state.nextTryAt).toISOString() }, 'no certificate');
      const { failures, reason, nextTryAt } = state;
      // Kept, so that a restart does not knock at once on a door that was just shut.
      await writePrivateFile(this.#failureFile(name), JSON.stringify({ failures, reason, nextTryAt })).catch(
        (err: unknown) => log.warn({ name, err }, 'a failure to obtain a certificate could not be noted'),
      );
    }
    await outcome(name, { ...state });
  }

  async #forget(name: string): Promise<void> {
    this.#states.delete(name);
    this.#unsaved.delete(name);
    await rm(path.join(this.#deps.folder, certificateFile(name)), { force: true });
    await rm(this.#failureFile(name), { force: true });
    await this.#deps.changed(name);
  }

  #state(name: string): CertificateState {
    let state = this.#states.get(name);
    if (!state) {
      state = emptyState(name);
      this.#states.set(name, state);
    }
    return state;
  }

  #failureFile(name: string): string {
    return path.join(this.#deps.folder, certificateFile(name).replace(/\.pem$/, '.json'));
  }

  async #load(): Promise<void> {
    const { folder, log } = this.#deps;
    for (const file of await readdir(folder)) {
      const name = file.replace(/\.(pem|json)$/, '').replace(/^_wildcard/, '*');
      if (name === file.replace(/^_wildcard/, '*')) continue;
      try {
        const text = await readFile(path.join(folder, file), 'utf8');
        Object.assign(this.#state(name), file.endsWith('.pem') ? validity(text) : failure(text));
      } catch (error) {
        log.warn({ file, err: error }, 'a file among the certificates cannot be read');
      }
    }
  }
}

function emptyState(name: string): CertificateState {
  return { name, validFrom: undefined, validTo: undefined, failures: 0, reason: undefined, nextTryAt: undefined };
}

function validity(pem: string): Pick<CertificateState, 'validFrom' | 'validTo'> {
  const certificate = new X509Certificate(pem.slice(pem.indexOf('-----BEGIN CERTIFICATE')));
  return { validFrom: Date.parse(certificate.validFrom), validTo: Date.parse(certificate.validTo) };
}

function failure(text: string): Pick<CertificateState, 'failures' | 'reason' | 'nextTryAt'> {
  const { failures, reason, nextTryAt } = JSON.parse(text) as Record<string, unknown>;
  return { failures: Number(failures) || 0, reason: String(reason ?? ''), nextTryAt: Number(nextTryAt) || 0 };
}
