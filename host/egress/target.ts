/**
 * The boundary: what a tenant asked for, as bytes on its proxy socket, becomes a checked Target or a Problem.
 * The WHATWG URL parser normalises decimal, octal and hexadecimal hosts, so later checks see one spelling.
 */
import { isIP } from 'node:net';
import { Problem } from '../shared/problem.ts';

export interface Target {
  kind: 'http' | 'https' | 'tcp';
  /** Lowercase punycode name without a final dot, or an IP address without brackets. */
  host: string;
  /** True when `host` is an IP address. */
  literal: boolean;
  port: number;
  /** Path and query for http and https; empty for tcp. */
  path: string;
  /** TLS is to be spoken there for the handler, which says when. */
  tls?: true;
  /** `host:port` with brackets around IPv6: how the target is named in allow lists, errors and logs. */
  name: string;
}

/**
 * @param uri absolute URI of a proxied request, such as `https://example.com/a?b` (workerd 1.20261117.1 sends
 * `https` requests in this form too and leaves TLS to the proxy)
 * @throws Problem bad_request
 */
export function parseHttpTarget(uri: string): Target {
  const url = URL.canParse(uri) ? new URL(uri) : undefined;
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new Problem('bad_request', 'fetch() needs an absolute http: or https: URL.');
  }
  const kind = url.protocol === 'https:' ? 'https' : 'http';
  const port = url.port === '' ? (kind === 'https' ? 443 : 80) : Number(url.port);
  return build(kind, url.hostname, port, url.pathname + url.search);
}

/**
 * @param authority `host:port` of a CONNECT request
 * @throws Problem bad_request
 */
export function parseConnectTarget(authority: string): Target {
  const port = /:(\d{1,5})$/.exec(authority)?.[1];
  const text = `http://${authority}`;
  const url = /[/?#@\\\s]/.test(authority) || !URL.canParse(text) ? undefined : new URL(text);
  if (!url || port === undefined || Number(port) > 65_535 || Number(port) === 0) {
    throw new Problem('bad_request', 'connect() needs an address of the form host:port.');
  }
  return build('tcp', url.hostname, Number(port), '');
}

/** What connect() of a handler adds to a name where it wants TLS: host/bindings/sockets/secure-sockets.js. */
const TLS_TARGET = /^(.+?)(\.v6)?\.tls\.turnpike\.internal:(\d{1,5})$/i;

/** Whether the one who connects speaks in frames until TLS is established, and expects the same. */
export function isFramed(authority: string): boolean {
  return TLS_TARGET.test(authority);
}

/**
 * The same for those that {@link isFramed}.
 * @throws Problem bad_request
 */
export function parseFramedTarget(authority: string): Target {
  const [, host = '', v6, port] = TLS_TARGET.exec(authority) ?? [];
  const named = v6 === undefined ? host : `[${host.replaceAll('-', ':')}]`;
  return { ...parseConnectTarget(`${named}:${port}`), tls: true };
}

function build(kind: Target['kind'], hostname: string, port: number, path: string): Target {
  const host = hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
  if (host === '' || host.length > 253 || port === 0) {
    throw new Problem('bad_request', 'The address has no usable host or port; write host:port.');
  }
  const name = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  return { kind, host, literal: isIP(host) !== 0, port, path, name };
}
