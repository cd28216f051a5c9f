/** IP addresses as limits and lists compare them. */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/** Whom limits by address count: the address, and of IPv6 the /64, for whoever has one address has the whole of it. */
export function networkOf(address: string): string {
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  return parsed instanceof ipaddr.IPv6 ? `${parsed.parts.slice(0, 4).join(':')}/64` : parsed.toString();
}

/** IPv4 in IPv6 spelling, as dual-stack sockets report it, becomes IPv4. */
export function plainIp(ip: string): string {
  return ip.startsWith('::ffff:') && isIP(ip.slice(7)) === 4 ? ip.slice(7) : ip;
}
