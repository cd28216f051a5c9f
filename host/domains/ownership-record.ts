/** Looks up the TXT record by which a tenant shows that a domain is its own. */
import { createHash } from 'node:crypto';
import { Resolver } from 'node:dns/promises';
import type { TenantId } from '../shared/contracts.ts';

export type RecordCheck =
  | { found: true }
  /** `unanswered`: the DNS said neither yes nor no, which proves nothing against the owner. */
  | { found: false; reason: string; unanswered?: true };

const LOOKUP_TIMEOUT_MS = 3_000;
const TRIES = 2;

/** Name of the TXT record for a domain. */
export function recordName(domain: string): string {
  return `_turnpike.${domain}`;
}

/** Value of the TXT record: of this domain and this tenant alone, and the same whenever it is asked for. */
export function ownershipToken(domain: string, tenant: TenantId): string {
  return `tp-${createHash('sha256').update(`turnpike-domain ${tenant} ${domain}`).digest('hex').slice(0, 32)}`;
}

export class OwnershipRecords {
  readonly #resolver: Resolver;

  /** @param server `host:port` of a DNS server; empty: the system's */
  constructor(server: string, limits = { timeout: LOOKUP_TIMEOUT_MS, tries: TRIES }) {
    this.#resolver = new Resolver(limits);
    if (server !== '') this.#resolver.setServers([server]);
  }

  /** Never throws: what the DNS says becomes a reason for the owner. */
  async check(domain: string, token: string): Promise<RecordCheck> {
    const name = recordName(domain);
    try {
      const records = await this.#resolver.resolveTxt(name);
      const values = records.map((chunks) => chunks.join('').trim());
      if (values.includes(token)) return { found: true };
      return { found: false, reason: `The TXT record ${name} has another value than ${token}.` };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOTFOUND' || code === 'ENODATA') {
        return { found: false, reason: `There is no TXT record ${name} yet; set it to ${token}.` };
      }
      const reason = `The DNS did not answer for ${name} (${code ?? 'error'}); tried again later.`;
      return { found: false, reason, unanswered: true };
    }
  }
}
