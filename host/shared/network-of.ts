/** IP addresses as limits and lists compare them. */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/** The unit that per-address limits count: the IPv4 address, or the IPv6 /64, because one client usually owns all of a /64. */
export function networkOf(address: string): string {
  if (isIP(address) === 4 || !ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  return parsed instanceof ipaddr.IPv6 ? `${parsed.parts.slice(0, 4).join(':')}/64` : parsed.toString();
}

/** IPv4 in IPv6 spelling, as dual-stack sockets report it, becomes IPv4. */
export function plainIp(ip: string): string {
  return ip.startsWith('::ffff:') && isIP(ip.slice(7)) === 4 ? ip.slice(7) : ip;
}
