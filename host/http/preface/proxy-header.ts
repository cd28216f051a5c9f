/**
 * PROXY protocol v2 (haproxy.org, proxy-protocol.txt, section 2.2): what a load balancer in front says of the caller.
 * Read only from proxies that the operator trusts.
 */
import { SocketAddress } from 'node:net';
import { plainIp } from '../../shared/network-of.ts';

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
const FIXED_BYTES = 16;
/** Addresses and the extensions in use today fit many times over. */
const MAX_BYTES = 4_096;
const LOCAL = 0x20;
const PROXY = 0x21;
const INET_STREAM = 0x11;
const INET6_STREAM = 0x21;

export type ProxyHeader =
  | { kind: 'incomplete' }
  | { kind: 'malformed' }
  /** `address` is undefined for the proxy's own connections, such as health checks. */
  | { kind: 'read'; bytes: number; address: string | undefined };

export function readProxyHeader(bytes: Buffer): ProxyHeader {
  const seen = Math.min(bytes.length, SIGNATURE.length);
  if (!bytes.subarray(0, seen).equals(SIGNATURE.subarray(0, seen))) return { kind: 'malformed' };
  if (bytes.length < FIXED_BYTES) return { kind: 'incomplete' };
  const command = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const length = FIXED_BYTES + bytes.readUInt16BE(14);
  if (length > MAX_BYTES || (command !== LOCAL && command !== PROXY)) return { kind: 'malformed' };
  if (bytes.length < length) return { kind: 'incomplete' };
  if (command === LOCAL) return { kind: 'read', bytes: length, address: undefined };
  if (family === INET_STREAM && length >= FIXED_BYTES + 12) {
    return { kind: 'read', bytes: length, address: [...bytes.subarray(16, 20)].join('.') };
  }
  if (family === INET6_STREAM && length >= FIXED_BYTES + 36) {
    const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(16 + 2 * index).toString(16));
    // In the spelling of RFC 5952, as a socket would report it: limits count by this text.
    const { address } = new SocketAddress({ address: groups.join(':'), family: 'ipv6' });
    return { kind: 'read', bytes: length, address: plainIp(address) };
  }
  return { kind: 'malformed' };
}
