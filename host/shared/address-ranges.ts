/** Sets of IP address ranges, looked up on the way of every request: one step for each length of prefix that occurs. */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

type Family = 4 | 6;
interface Range {
  family: Family;
  /** Of the first address. */
  bytes: number[];
  bits: number;
}

/** Addresses whose answer is remembered: most requests come from few. */
const MOST_REMEMBERED = 10_000;
/** Prefix of IPv4 addresses in IPv6 spelling. */
const MAPPED_BITS = 96;

export class AddressRanges {
  /** By family and bits of the prefix: the prefixes. */
  readonly #prefixes = new Map<Family, Map<number, Set<string>>>();
  readonly #remembered = new Map<string, boolean>();

  /** @param ranges such as `203.0.113.0/24`, or single addresses; what is neither is left out */
  constructor(ranges: Iterable<string>) {
    for (const text of ranges) {
      const range = parseRange(text);
      if (!range) continue;
      const { family, bytes, bits } = range;
      const lengths = this.#prefixes.get(family) ?? new Map<number, Set<string>>();
      this.#prefixes.set(family, lengths);
      lengths.set(bits, (lengths.get(bits) ?? new Set()).add(prefixOf(bytes, bits)));
    }
  }

  has(address: string): boolean {
    const known = this.#remembered.get(address);
    if (known !== undefined) return known;
    const found = this.#find(address);
    if (this.#remembered.size >= MOST_REMEMBERED) this.#remembered.clear();
    this.#remembered.set(address, found);
    return found;
  }

  #find(address: string): boolean {
    const one = parseRange(address);
    if (!one) return false;
    for (const [bits, prefixes] of this.#prefixes.get(one.family) ?? [])
      if (prefixes.has(prefixOf(one.bytes, bits))) return true;
    return false;
  }
}

/** @returns the canonical spelling of a range or an address: `203.0.113.9/24` is `203.0.113.0/24`; undefined: it is none */
export function canonicalRange(text: string): string | undefined {
  const range = parseRange(text);
  if (!range) return undefined;
  const { bytes, bits } = range;
  const first = ipaddr.fromByteArray(masked(bytes, bits));
  return `${first.toString()}/${bits}`;
}

function parseRange(text: string): Range | undefined {
  const [address = '', bits, ...more] = text.split('/');
  if (isIP(address) === 0 || address.includes('%') || more.length > 0) return undefined;
  const parsed = ipaddr.parse(address);
  const most = parsed.kind() === 'ipv4' ? 32 : 128;
  if (bits !== undefined && !(/^\d{1,3}$/.test(bits) && Number(bits) <= most)) return undefined;
  const length = bits === undefined ? most : Number(bits);
  if (parsed instanceof ipaddr.IPv6 && parsed.isIPv4MappedAddress() && length >= MAPPED_BITS)
    return { family: 4, bytes: parsed.toIPv4Address().toByteArray(), bits: length - MAPPED_BITS };
  return { family: most === 32 ? 4 : 6, bytes: parsed.toByteArray(), bits: length };
}

function prefixOf(bytes: number[], bits: number): string {
  return masked(bytes, bits)
    .slice(0, Math.ceil(bits / 8))
    .join('.');
}

function masked(bytes: number[], bits: number): number[] {
  return bytes.map((byte, at) => byte & (0xff00 >> Math.min(8, Math.max(0, bits - at * 8))) & 0xff);
}
