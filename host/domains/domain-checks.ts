/**
 * The life of an attached domain: pending until its owner's record is found, then served; looked at again every day,
 * and taken out of service when the record has been missing for a week.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Logger } from 'pino';
import { type Domains, taken } from '../registry/domains.ts';
import type { Domain } from '../registry/schema/deployments.ts';
import type { Clock } from '../shared/clock.ts';
import type { TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { type OwnershipRecords, ownershipToken, recordName } from './ownership-record.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** A missing record takes a verified domain out of service after this long. */
const MISSING_FOR_MS = 7 * DAY_MS;
/** A GET looks at the DNS again, but not more often than this. */
const SHORTEST_BETWEEN_MS = 2_000;
const LONGEST_BETWEEN_MS = 60 * MINUTE_MS;
const CHECKS_AT_ONCE = 50;

export interface DomainCheckDeps {
  domains: Domains;
  records: OwnershipRecords;
  clock: Clock;
  /** Trusted business time, ms. */
  trustedNow(): Promise<number>;
  log: Logger;
  /** SHA-256 (hex) of tokens that registrars may present instead of a TXT record. */
  registrarTokenHashes: string[];
  /** Whether a verified name can be served at once: false where a certificate has to come first. */
  servesAtOnce(domain: string): boolean;
  /** The name may be served now, or no more; edges and certificates follow. */
  onChange(domain: string, tenant: TenantId): Promise<void>;
}

export class DomainChecks {
  readonly #deps: DomainCheckDeps;

  constructor(deps: DomainCheckDeps) {
    this.#deps = deps;
  }

  /**
   * @param vouched a trusted registrar says that the domain is the tenant's, which no record has to show then
   * @throws Problem conflict when another tenant has the domain
   */
  async attach(domain: string, tenant: TenantId, vouched = false): Promise<Domain> {
    const { domains, clock } = this.#deps;
    const token = ownershipToken(domain, tenant);
    const held = await domains.byName(domain);
    if (held && held.tenant !== tenant) await this.#contest(held, token, vouched);
    const row = await domains.attach(domain, tenant, token, clock.now());
    const looked = vouched ? this.#verified(row, 'token') : row.state === 'pending' ? this.check(row) : row;
    const answer = await looked;
    // Before it was proved it may have gone to another one who could prove it, too.
    if ((await domains.byName(domain))?.tenant !== tenant) throw taken(domain);
    return answer;
  }

  /** Whether a token is one of a registrar that the operator trusts. */
  vouches(registrarToken: string): boolean {
    const hash = createHash('sha256').update(registrarToken).digest();
    return this.#deps.registrarTokenHashes.some((known) => {
      const expected = Buffer.from(known, 'hex');
      return expected.length === hash.length && timingSafeEqual(expected, hash);
    });
  }

  /** Out of service at once. @returns whether the tenant had the domain */
  async detach(domain: string, tenant: TenantId): Promise<boolean> {
    const { domains, onChange } = this.#deps;
    if (!(await domains.detach(domain, tenant))) return false;
    await onChange(domain, tenant);
    return true;
  }

  /** Looks at the DNS now where that may change something, unless it was looked at a moment ago. */
  async refresh(row: Domain): Promise<Domain> {
    const { clock } = this.#deps;
    const waits = row.state === 'pending' || row.failingSince !== null || row.nextCheckAt <= clock.now();
    if (!waits || clock.now() - (row.checkedAt ?? 0) < SHORTEST_BETWEEN_MS) return row;
    return await this.check(row);
  }

  /** Everything that is due; called by the scheduler. */
  async sweep(): Promise<void> {
    const { domains, clock, log } = this.#deps;
    const due = await domains.dueChecks(clock.now(), CHECKS_AT_ONCE);
    await Promise.all(
      due.map((row) => this.check(row).catch((error) => log.error({ err: error }, 'a domain was not checked'))),
    );
  }

  async check(row: Domain): Promise<Domain> {
    const { records, clock, domains, onChange } = this.#deps;
    if (row.verifiedBy === 'token') return await this.#later(row, { nextCheckAt: clock.now() + DAY_MS });
    const result = await records.check(row.domain, row.token);
    const now = clock.now();
    if (result.found) return await this.#verified(row, 'txt');
    if (row.state === 'pending') {
      const wait = Math.min(LONGEST_BETWEEN_MS, MINUTE_MS * 2 ** Math.min(row.attempts, 10));
      return await this.#later(row, {
        reason: result.reason,
        checkedAt: now,
        attempts: row.attempts + 1,
        nextCheckAt: now + wait,
      });
    }
    // An outage of a resolver must not take every domain out of service, nor open it to another claimant.
    if (result.unanswered)
      return await this.#later(row, { reason: result.reason, checkedAt: now, nextCheckAt: now + LONGEST_BETWEEN_MS });
    // Neither a clock that leaps nor one that is set back ends or prolongs what a record may be missing for.
    const trustedNow = Math.min(now, await this.#deps.trustedNow());
    const failingSince = Math.min(row.failingSince ?? trustedNow, trustedNow);
    if (trustedNow - failingSince < MISSING_FOR_MS) {
      return await this.#later(row, {
        reason: result.reason,
        checkedAt: now,
        failingSince,
        nextCheckAt: now + LONGEST_BETWEEN_MS,
      });
    }
    const changed = await domains.update(row, {
      state: 'pending',
      reason: `Out of service: ${result.reason}`,
      checkedAt: now,
      failingSince: null,
      attempts: 0,
      nextCheckAt: now + MINUTE_MS,
    });
    await onChange(row.domain, row.tenant);
    return changed ?? row;
  }

  /** A name that its holder has not proved, or proves no more, goes to the one who can. */
  async #contest(held: Domain, token: string, vouched: boolean): Promise<void> {
    const { domains, records, onChange } = this.#deps;
    const { domain, tenant } = held;
    if (held.state !== 'pending' && held.failingSince === null) throw taken(domain);
    if (!vouched && !(await records.check(domain, token)).found) {
      throw new Problem(
        'conflict',
        `${domain} is attached to another slug, whose ownership of it is not verified. If the domain is yours, set the TXT record ` +
          `${recordName(domain)} to ${token} and attach it again.`,
      );
    }
    if (await domains.releaseUnproved(domain, tenant)) await onChange(domain, tenant);
  }

  async #verified(row: Domain, by: 'txt' | 'token'): Promise<Domain> {
    const { domains, clock, onChange, servesAtOnce } = this.#deps;
    const now = clock.now();
    const fresh = row.state === 'pending';
    const returned = row.failingSince !== null;
    const changed = await domains.update(row, {
      state: row.state === 'active' || servesAtOnce(row.domain) ? 'active' : 'verified',
      // Otherwise the reason of a verified name is its certificate's, which is not this check's to clear.
      ...(fresh || returned ? { reason: null } : {}),
      verifiedBy: by,
      verifiedAt: row.verifiedAt ?? now,
      checkedAt: now,
      failingSince: null,
      attempts: 0,
      nextCheckAt: now + DAY_MS,
    });
    if (fresh) await onChange(row.domain, row.tenant);
    return changed ?? row;
  }

  async #later(row: Domain, change: Partial<Domain>): Promise<Domain> {
    return (await this.#deps.domains.update(row, change)) ?? row;
  }
}
