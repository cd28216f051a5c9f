/**
 * Headers that do not travel: hop-by-hop ones (RFC 9110, 7.6.1), and those by which parts of this host speak to
 * each other, which a tenant could otherwise forge.
 */

const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

const INTERNAL = new Set(['x-payer', 'x-payment-id', 'x-payment-check', 'cf-blob', 'cf-connecting-ip', 'cf-ray']);
const INTERNAL_PREFIX = 'x-turnpike-';

/**
 * Headers for the outside, as the flat list that `http.request` takes.
 * @param raw `rawHeaders` of the tenant's request
 * @param host value of the Host header (workerd sends none to a proxy)
 */
export function outgoing(raw: readonly string[], host: string): string[] {
  const kept = keep(raw, (name) => name !== 'host' && name !== 'expect' && !isInternal(name));
  return ['host', host, ...kept];
}

/** Headers of an answer for the tenant, as the flat list that `writeHead` takes. */
export function incoming(raw: readonly string[]): string[] {
  return keep(raw, () => true);
}

function isInternal(name: string): boolean {
  return INTERNAL.has(name) || name.startsWith(INTERNAL_PREFIX);
}

function keep(raw: readonly string[], wanted: (lowercaseName: string) => boolean): string[] {
  const named = new Set<string>();
  for (let index = 0; index < raw.length; index += 2) {
    if (raw[index]?.toLowerCase() !== 'connection') continue;
    for (const name of raw[index + 1]?.split(',') ?? []) named.add(name.trim().toLowerCase());
  }
  const kept: string[] = [];
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const lower = name.toLowerCase();
    if (!HOP_BY_HOP.has(lower) && !named.has(lower) && wanted(lower)) kept.push(name, raw[index + 1] ?? '');
  }
  return kept;
}
