/** Looks up the TXT record by which a tenant shows that a domain is its own. */
import { createHash } from 'node:crypto';
import { Resolver } from 'node:dns/promises';
import type { TenantId } from '../shared/contracts.ts';

export type RecordCheck = { found: true } | { found: false; reason: string };

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
  constructor(server: string) {
    this.#resolver = new Resolver({ timeout: LOOKUP_TIMEOUT_MS, tries: TRIES });
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
      return { found: false, reason: `The DNS did not answer for ${name} (${code ?? 'error'}); tried again later.` };
    }
  }
}
