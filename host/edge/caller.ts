/** Who is calling, and how it reached us: the socket's peer, or what a trusted proxy says of the caller. */
import { BlockList, isIP } from 'node:net';
import type { Peer } from '../http/message/exchange.ts';
import { HOST, type RequestHead } from '../http/message/head.ts';
import { plainIp } from '../shared/network-of.ts';
import { ownCallerAddress } from '../shared/own-caller.ts';

export interface Caller {
  ip: string;
  proto: 'http' | 'https';
  /** Host as the caller addressed it, with port. */
  host: string;
}

export class TrustedProxies {
  readonly #list = new BlockList();
  readonly #empty: boolean;

  /** @param cidrs such as `10.0.0.0/8`, `::1/128`, or single addresses; throws TypeError for others */
  constructor(cidrs: readonly string[]) {
    this.#empty = cidrs.length === 0;
    for (const cidr of cidrs) {
      const [address = '', bits] = cidr.split('/');
      const version = isIP(address);
      const prefix = bits === undefined ? (version === 4 ? 32 : 128) : Number(bits);
      if (version === 0 || !Number.isInteger(prefix) || prefix < 0 || prefix > (version === 4 ? 32 : 128)) {
        throw new TypeError(`trustedProxies: ${cidr} is not an address range such as 10.0.0.0/8`);
      }
      this.#list.addSubnet(address, prefix, version === 4 ? 'ipv4' : 'ipv6');
    }
  }

  trusts(ip: string): boolean {
    if (this.#empty) return false;
    const version = isIP(ip);
    return version !== 0 && this.#list.check(ip, version === 4 ? 'ipv4' : 'ipv6');
  }

  /** @param ownCallerKey tells this host's own tenants, who call from this machine */
  callerOf({ address: ip, encrypted }: Peer, head: RequestHead, ownCallerKey?: string): Caller {
    const proto = encrypted ? 'https' : 'http';
    if (head.ownCaller !== '' && ownCallerKey !== undefined) {
      const own = ownCallerAddress(head.ownCaller, ownCallerKey);
      // Whatever else it says is the tenant's word; only the scheme is the egress's.
      if (own !== undefined) {
        return { ip: own, proto: first(head.forwardedProto) === 'https' ? 'https' : proto, host: head.host };
      }
    }
    if (!this.trusts(ip)) return { ip, proto, host: head.host };
    return {
      ip: this.#forwardedIp(head.forwardedFor) ?? ip,
      proto: first(head.forwardedProto) === 'https' ? 'https' : first(head.forwardedProto) === 'http' ? 'http' : proto,
      host: HOST.test(first(head.forwardedHost)) ? first(head.forwardedHost) : head.host,
    };
  }

  /** The last address that no trusted proxy has added: everything before it may be made up. */
  #forwardedIp(chain: string): string | undefined {
    let found: string | undefined;
    for (const part of chain.split(',').reverse()) {
      const ip = plainIp(withoutPort(part.trim()));
      if (isIP(ip) === 0) return found;
      found = ip;
      if (!this.trusts(ip)) return found;
    }
    return found;
  }
}

function withoutPort(part: string): string {
  if (part.startsWith('[')) return part.slice(1, part.indexOf(']'));
  return /^[0-9.]+:[0-9]+$/.test(part) ? part.slice(0, part.indexOf(':')) : part;
}

function first(list: string): string {
  const comma = list.indexOf(',');
  return (comma < 0 ? list : list.slice(0, comma)).trim();
}
