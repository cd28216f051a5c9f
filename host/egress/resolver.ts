/**
 * Names to addresses that were checked. Lookups of tenants go through c-ares, not getaddrinfo: that one occupies
 * the process's few threads, so one tenant's slow names would stop everyone's, and it reads the machine's hosts file.
 */
import { Resolver, lookup as systemLookup } from 'node:dns/promises';
import type { LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import { Problem } from '../shared/problem.ts';
import { canonical, whyRefused } from './address.ts';
import { refused, type Way } from './route.ts';
import type { Target } from './target.ts';

interface Address {
  address: string;
  family: 4 | 6;
}

const DNS_TIMEOUT_MS = 3_000;
const DNS_TRIES = 2;
/** Addresses of one name that are tried; more serve nobody but a hostile zone. */
const MOST_ADDRESSES = 16;

export class CheckedResolver {
  readonly #resolver = new Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES });
  #own: { addresses: ReadonlySet<string>; readAt: number } = { addresses: new Set(), readAt: Number.NEGATIVE_INFINITY };

  /** @param servers DNS servers as `host:port`; empty: those of the machine */
  constructor(servers: readonly string[]) {
    if (servers.length > 0) this.#resolver.setServers(servers);
  }

  /**
   * Every address of the target, all of them allowed.
   * @throws Problem egress_refused when one address may not be reached, egress_failed when the name has none
   */
  async resolve(target: Target, way: Way): Promise<Address[]> {
    if (way.kind === 'opened') return this.#opened(target);
    const addresses = target.literal
      ? [{ address: target.host, family: target.host.includes(':') ? 6 : 4 } as const]
      : await this.#query(target);
    const own = this.#ownAddresses();
    for (const { address } of addresses) {
      const why = whyRefused(address, own);
      if (why !== undefined) throw refused(target, `its address is ${why}`);
    }
    return addresses.slice(0, MOST_ADDRESSES);
  }

  /** For `net.connect`: it connects to exactly the addresses that passed, so a second answer cannot swap them. */
  lookupOf(addresses: Address[]): LookupFunction {
    return (_host, options, callback) => {
      const [first] = addresses;
      if (!first) callback(Object.assign(new Error('no address'), { code: 'ENOTFOUND' }), '', 4);
      else if (options.all) callback(null, addresses);
      else callback(null, first.address, first.family);
    };
  }

  async #opened(target: Target): Promise<Address[]> {
    try {
      const found = await systemLookup(target.host, { all: true });
      return found.map(({ address, family }) => ({ address, family: family === 6 ? 6 : 4 }));
    } catch {
      throw unresolved(target);
    }
  }

  async #query(target: Target): Promise<Address[]> {
    const [v4, v6] = await Promise.allSettled([
      this.#resolver.resolve4(target.host),
      this.#resolver.resolve6(target.host),
    ]);
    const addresses: Address[] = [
      ...(v4.status === 'fulfilled' ? v4.value.map((address) => ({ address, family: 4 as const })) : []),
      ...(v6.status === 'fulfilled' ? v6.value.map((address) => ({ address, family: 6 as const })) : []),
    ];
    if (addresses.length === 0) throw unresolved(target);
    return addresses;
  }

  /** Addresses of this machine, read anew every minute: interfaces come and go. */
  #ownAddresses(): ReadonlySet<string> {
    const now = performance.now();
    if (now - this.#own.readAt > 60_000) {
      const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
      this.#own = { addresses: new Set(all.map(({ address }) => canonical(address))), readAt: now };
    }
    return this.#own.addresses;
  }
}

function unresolved(target: Target): Problem {
  return new Problem('egress_failed', `No address was found for ${target.host}; check the name.`, {
    extensions: { target: target.name },
  });
}
