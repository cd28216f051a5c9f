/**
 * Changes deployments as time passes: warns before expiry, expires them, decommissions them after the grace period and
 * deletes their data. Every step is idempotent: the next tick finishes what a crash interrupted.
 */
import { rm } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import { DAY_MS, type Deployments } from '../registry/deployments.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { TrustedClock } from '../registry/trusted-clock.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { TenantId } from '../shared/contracts.ts';
import { iso } from './metadata.ts';
import type { RoutePublisher } from './route-publisher.ts';

const WARN_BEFORE_MS = 7 * DAY_MS;
const NOTIFY_TIMEOUT_MS = 10_000;

export interface LifecycleDeps {
  config: Config['slugs'];
  clock: Clock;
  log: Logger;
  deployments: Deployments;
  /** Decides when data is deleted. */
  trustedClock: Pick<TrustedClock, 'now'>;
  routes: RoutePublisher;
  runtime: Pick<Runtime, 'stop'>;
  logs: LogStore;
  tenantsFolder: string;
  /** Removes KV, objects and databases wherever they are. */
  purgeStorage(tenant: TenantId): Promise<void>;
  /** Removes code that no version uses any more. */
  removeCode(digests: string[]): Promise<void>;
  /** Sends an HTTP request that obeys the outbound address policy; used for `notify` webhooks. */
  post(url: string, body: string, timeoutMs: number): Promise<void>;
}

export class Lifecycle {
  readonly #deps: LifecycleDeps;

  constructor(deps: LifecycleDeps) {
    this.#deps = deps;
  }

  /** Does everything that is due now. @returns when to look again, clock ms */
  async tick(): Promise<number | undefined> {
    await this.#comeBack();
    await this.#expire();
    const trustedNow = await this.#deps.trustedClock.now();
    await this.#warn(trustedNow);
    await this.#endGrace(trustedNow);
    await this.#purge(trustedNow);
    return await this.#deps.deployments.terms.nextExpiry();
  }

  /** Restores deployments that expired only because the clock was ahead. */
  async #comeBack(): Promise<void> {
    const { deployments, clock, routes, logs } = this.#deps;
    for (const row of await deployments.terms.undoExpiry(clock.now())) {
      await routes.push(row.slug);
      const text = 'the clock of the host was ahead, and was set right';
      await logs.append(row.tenant, { kind: 'platform', event: 'expiry-undone', text });
    }
  }

  async #expire(): Promise<void> {
    const { deployments, clock, routes, runtime, logs, log } = this.#deps;
    for (const row of await deployments.terms.expireDue(clock.now())) {
      const failed = (error: unknown) => log.error({ err: error, tenant: row.tenant }, 'an expiry was not carried out');
      // One that fails, or whose requests take their time to end, does not hold up the others.
      await routes.push(row.slug).catch(failed);
      const text = `on ${iso(row.expiresAt)}; renew to go on`;
      await logs.append(row.tenant, { kind: 'platform', event: 'expired', text });
      void runtime.stop(row.slug, 'stopped').catch(failed);
    }
  }

  async #warn(now: number): Promise<void> {
    const { deployments, logs } = this.#deps;
    for (const row of await deployments.terms.takeExpiryWarnings(now, now + WARN_BEFORE_MS)) {
      await logs.append(row.tenant, { kind: 'platform', event: 'expires-soon', text: `on ${iso(row.expiresAt)}` });
      if (row.notify) void this.#notify(row, row.notify);
    }
  }

  async #notify(row: Deployment, url: string): Promise<void> {
    const { post, logs } = this.#deps;
    const body = JSON.stringify({ type: 'expires-soon', slug: row.slug, expiresAt: iso(row.expiresAt) });
    try {
      await post(url, body, NOTIFY_TIMEOUT_MS);
    } catch (error) {
      await logs.append(row.tenant, { kind: 'platform', event: 'notify-failed', text: (error as Error).message });
    }
  }

  async #endGrace(now: number): Promise<void> {
    const { deployments, config, routes, logs } = this.#deps;
    const graceMs = config.graceDays * DAY_MS;
    for (const row of await deployments.terms.graceOver(now, graceMs)) {
      // The grace period is already over, so the data goes with the next step.
      const cooldownMs = config.cooldownDays * DAY_MS;
      if (!(await deployments.terms.endGrace(row.tenant, now, graceMs, cooldownMs))) continue;
      await routes.push(row.slug);
      await logs.append(row.tenant, { kind: 'platform', event: 'decommissioned', text: 'the grace period is over' });
    }
  }

  async #purge(now: number): Promise<void> {
    const { deployments, clock, runtime, log, tenantsFolder, purgeStorage, removeCode } = this.#deps;
    for (const row of await deployments.terms.duePurges(now)) {
      try {
        const living = await deployments.bySlug(row.slug);
        if (living?.tenant === row.tenant) await runtime.stop(row.slug, 'stopped');
        await purgeStorage(row.tenant);
        await rm(path.join(tenantsFolder, row.tenant), { recursive: true, force: true });
        await removeCode(await deployments.terms.markPurged(row.tenant, clock.now()));
        log.info({ tenant: row.tenant }, 'the data of a decommissioned deployment was removed');
      } catch (error) {
        log.error({ err: error, tenant: row.tenant }, 'data was not removed; tried again later');
      }
    }
  }
}
