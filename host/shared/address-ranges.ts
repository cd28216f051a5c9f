/** Sets of IP address ranges, looked up on the way of every request. */
import { BlockList, isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/** Addresses whose answer is remembered: most requests come from few. */
const MOST_REMEMBERED = 10_000;
/** Prefix of IPv4 addresses in IPv6 spelling. */
const MAPPED_BITS = 96;

export class AddressRanges {
  readonly #list = new BlockList();
  readonly #remembered = new Map<string, boolean>();

  /** @param ranges such as `203.0.113.0/24`, or single addresses; what is neither is left out */
  constructor(ranges: Iterable<string>) {
    for (const text of ranges) {
      const range = parseRange(text);
      if (range) this.#list.addSubnet(range.first, range.bits, range.family);
    }
  }

  has(address: string): boolean {
    const known = this.#remembered.get(address);
    if (known !== undefined) return known;
    const one = parseRange(address);
    const found = one !== undefined && this.#list.check(one.first, one.family);
    if (this.#remembered.size >= MOST_REMEMBERED) this.#remembered.clear();
    this.#remembered.set(address, found);
    return found;
  }
}

/** @returns the canonical spelling of a range or an address: `203.0.113.9/24` is `203.0.113.0/24`; undefined: it is none */
export function canonicalRange(text: string): string | undefined {
  const range = parseRange(text);
  return range && `${range.first}/${range.bits}`;
}

interface Range {
  family: 'ipv4' | 'ipv6';
  /** Its first address. */
  first: string;
  bits: number;
}

function parseRange(text: string): Range | undefined {
  const [address = '', bits, ...more] = text.split('/');
  if (isIP(address) === 0 || address.includes('%') || more.length > 0) return undefined;
  const given = ipaddr.parse(address);
  const most = given.kind() === 'ipv4' ? 32 : 128;
  if (bits !== undefined && !(/^\d{1,3}$/.test(bits) && Number(bits) <= most)) return undefined;
  const length = bits === undefined ? most : Number(bits);
  const mapped = given instanceof ipaddr.IPv6 && given.isIPv4MappedAddress() && length >= MAPPED_BITS;
  const parsed = mapped ? given.toIPv4Address() : given;
  const left = mapped ? length - MAPPED_BITS : length;
  const first = parsed
    .toByteArray()
    .map((byte, at) => byte & (0xff00 >> Math.min(8, Math.max(0, left - at * 8))) & 0xff);
  return { family: parsed.kind(), first: ipaddr.fromByteArray(first).toString(), bits: left };
}
