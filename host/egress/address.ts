/**
 * Which addresses a tenant may reach: public unicast ones, and nothing else. The check runs on the address that
 * is then connected to, so that neither a spelling nor a second DNS answer gets around it.
 */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/** 2000::/3 is all that IANA gives out as global unicast; whatever lies outside it is special by definition. */
const GLOBAL_UNICAST_V6 = ipaddr.IPv6.parseCIDR('2000::/3');

/** Special addresses inside the global ranges that ipaddr.js (2.5.0) counts as plain unicast. */
const EXTRA: [network: [ipaddr.IPv4 | ipaddr.IPv6, number], name: string][] = [
  [ipaddr.parseCIDR('168.63.129.16/32'), 'cloud metadata'],
  [ipaddr.parseCIDR('3fff::/20'), 'documentation'],
];

/** ipaddr.js range -> what an owner understands. Ranges that are not here are named as they are. */
const NAMES: Record<string, string> = {
  ipv4Mapped: 'IPv4-mapped',
  rfc6052: 'NAT64',
  rfc6145: 'IPv4-translated',
  linkLocal: 'link-local',
  carrierGradeNat: 'carrier-grade NAT',
  uniqueLocal: 'unique-local',
};

/**
 * @param address an IP address in any form that `net.isIP` accepts, without brackets
 * @param own addresses of this machine's interfaces in canonical form: what listens there may trust the machine
 * @returns the reason for refusing it, or undefined when it may be connected to
 */
export function whyRefused(address: string, own: ReadonlySet<string>): string | undefined {
  if (address.includes('%')) return 'link-local (with a zone)';
  if (isIP(address) === 0) return 'not an IP address';
  const parsed = ipaddr.parse(address);
  const range = parsed.range();
  if (range !== 'unicast') return NAMES[range] ?? range;
  for (const [network, name] of EXTRA) {
    if (network[0].kind() === parsed.kind() && parsed.match(network as never)) return name;
  }
  if (parsed instanceof ipaddr.IPv6 && !parsed.match(GLOBAL_UNICAST_V6)) return 'not global unicast';
  if (own.has(canonical(address))) return 'an address of this host';
  return undefined;
}

/** One spelling per address, for comparing. */
export function canonical(address: string): string {
  const withoutZone = address.replace(/%.*$/, '');
  return ipaddr.isValid(withoutZone) ? ipaddr.parse(withoutZone).toString() : address;
}
