/**
 * Headers that do not travel: hop-by-hop ones (RFC 9110, 7.6.1), and those by which parts of this host speak to
 * each other, which a tenant could otherwise forge.
 */
import type { Problem } from '../shared/problem.ts';

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

const INTERNAL = new Set([
  'x-payer',
  'x-payment-id',
  'x-payment-attempt',
  'x-payment-check',
  'cf-blob',
  'cf-connecting-ip',
  'cf-ray',
]);
const INTERNAL_PREFIX = 'x-turnpike-';

/** What a proxy in front of the edge says of the caller; the edge may believe whoever comes from this machine. */
const FORWARDED_PREFIX = 'x-forwarded-';

/**
 * Headers for the outside, as the flat list that `http.request` takes.
 * @param raw `rawHeaders` of the tenant's request
 * @param host value of the Host header (workerd sends none to a proxy)
 * @param toEdge they go to this host's own front door
 */
export function outgoing(raw: readonly string[], host: string, toEdge = false): string[] {
  const kept = keep(
    raw,
    (name) =>
      name !== 'host' && name !== 'expect' && !isInternal(name) && !(toEdge && name.startsWith(FORWARDED_PREFIX)),
  );
  return ['host', host, ...kept];
}

/** Headers of an answer for the tenant, as the flat list that `writeHead` takes. Nobody outside speaks in our name. */
export function incoming(raw: readonly string[]): string[] {
  return keep(raw, (name, value) => name !== 'proxy-status' || !value.toLowerCase().includes(OWN_NAME));
}

/** `Proxy-Status` (RFC 9209) of an answer that is ours and not the destination's: tells the two apart. */
export function proxyStatus({ code }: Problem): string {
  return `${OWN_NAME}; error=${ERROR_TYPES[code] ?? 'proxy_internal_error'}`;
}

const OWN_NAME = 'turnpike';

/** Error types as registered by RFC 9209, section 2.3. */
const ERROR_TYPES: Partial<Record<Problem['code'], string>> = {
  egress_refused: 'destination_ip_prohibited',
  egress_failed: 'destination_unavailable',
  egress_limit: 'connection_limit_reached',
  egress_timeout: 'http_response_timeout',
};

function isInternal(name: string): boolean {
  return INTERNAL.has(name) || name.startsWith(INTERNAL_PREFIX);
}

function keep(raw: readonly string[], wanted: (lowercaseName: string, value: string) => boolean): string[] {
  const named = new Set<string>();
  for (let index = 0; index < raw.length; index += 2) {
    if (raw[index]?.toLowerCase() !== 'connection') continue;
    for (const name of raw[index + 1]?.split(',') ?? []) named.add(name.trim().toLowerCase());
  }
  const kept: string[] = [];
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index] ?? '';
    const lower = name.toLowerCase();
    const value = raw[index + 1] ?? '';
    if (!HOP_BY_HOP.has(lower) && !named.has(lower) && wanted(lower, value)) kept.push(name, value);
  }
  return kept;
}
