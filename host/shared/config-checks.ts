/** Texts that the configuration takes: what is wrong with one is told at the start, not when it is first used. */
import { Resolver } from 'node:dns';
import { isIP } from 'node:net';
import { z } from 'zod';
import { serverUrls } from './postgres-servers.ts';

/** An absolute URL of one of the protocols (`https:`). */
const isUrl = (protocols: readonly string[]) => (text: string) => protocols.includes(URL.parse(text)?.protocol ?? '');

const orEmpty = (isRight: (text: string) => boolean) => (text: string) => text === '' || isRight(text);

const HTTP = ['http:', 'https:'];

export const httpUrl = z.string().refine(isUrl(HTTP), 'expected a URL such as https://example.com/path');
export const httpUrlOrEmpty = z.string().refine(orEmpty(isUrl(HTTP)), 'expected a URL such as https://example.com');

export const postgresUrlOrEmpty = z.string().refine(
  orEmpty((url) => serverUrls(url).every(isUrl(['postgres:', 'postgresql:']))),
  'expected a URL such as postgres://turnpike:password@db.example.com/turnpike',
);

/** IPv6 addresses in brackets. */
export const hostAndPortOrEmpty = z
  .string()
  .regex(/^(?:(?:[a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\]):\d{1,5})?$/, 'expected host:port such as 10.0.0.1:8404');

/** For what is asked by fetch(), which refuses a URL with a password, and says it in the error. */
export const plainUrlOrEmpty = httpUrlOrEmpty.refine(
  (text) => !URL.parse(text)?.username && !URL.parse(text)?.password,
  'expected a URL without user and password',
);

export const originOrEmpty = z.string().refine(
  orEmpty((text) => isUrl(HTTP)(text) && /^[^/]+:\/\/[^/?#@]+\/?$/.test(text)),
  'expected an origin such as https://api.example.com, without a path',
);

/** Names of RFC 1123, of which `localhost` is one. */
const LABEL = '[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?';
export const hostName = z
  .string()
  .max(253)
  .regex(new RegExp(`^${LABEL}(?:\\.${LABEL})*$`), 'expected a name such as example.com, without a port');

export const ipAddress = z
  .string()
  .refine((text) => isIP(text) !== 0, 'expected an IP address such as 127.0.0.1, or 0.0.0.0 for all of them');

export const addressRange = z.string().refine((text) => {
  const [address = '', bits, ...more] = text.split('/');
  const version = isIP(address);
  if (version === 0 || more.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128));
}, 'expected an address range such as 10.0.0.0/8');

/** What Node's resolver takes: an address, with a port or without; an IPv6 address with a port is in brackets. */
export const dnsServerOrEmpty = z.string().refine(
  orEmpty((text) => {
    try {
      new Resolver().setServers([text]);
      return true;
    } catch {
      return false;
    }
  }),
  'expected the address of a DNS server such as 192.0.2.1:53',
);

export const sqlServer = z
  .string()
  .refine(
    (text) => text === 'local' || isUrl([...HTTP, 'libsql:'])(text),
    'expected local, or a URL such as libsql://db.example.com',
  );

/** Compared with what a handler's `fetch` or `connect` names, so neither a range nor a name without a port matches. */
export const egressTarget = z
  .string()
  .regex(/^(?:unix:\/.+|[^\s/A-Z]+:\d{1,5})$/, 'expected host:port in lower case, or unix:/path');
