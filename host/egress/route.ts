/**
 * Where a request goes: to this host's own edge, to something the operator opened for the slug, or to the public
 * network. Pure; the address itself is judged later, when it is known (address.ts).
 */
import { basename } from 'node:path';
import { Problem } from '../shared/problem.ts';
import type { Target } from './target.ts';

export type Way =
  /** Our own front door. */
  | { kind: 'edge'; host: string; port: number }
  /** A unix socket that the operator opened. */
  | { kind: 'unix'; path: string }
  /** An address that the operator opened: no address check. */
  | { kind: 'opened' }
  /** Anything else: only public addresses. */
  | { kind: 'public' };

export interface Surroundings {
  /** Public names of this host, `host:port` or `host`, lowercase. */
  ownHosts: readonly string[];
  /** Every name below it is a tenant of this host; a leading dot is optional. */
  baseDomain: string;
  edgeAddress: { host: string; port: number };
  /** Where the edge speaks TLS; undefined: https requests to own names go to `edgeAddress` in plain HTTP. */
  edgeTlsAddress: { host: string; port: number } | undefined;
  /** The edge expects a PROXY header of connections from this machine. */
  edgeProxyHeader?: boolean;
  /** With it the edge is told which tenant calls. */
  ownCallerKey?: string;
  /** Ports that connect() may reach; undefined: all but 25. */
  connectPorts: readonly number[] | undefined;
}

/** Port 25 is closed to fetch() too: a request line can be made to look like SMTP. */
const MAIL_PORT = 25;

/**
 * @param allow `host:port` or `unix:<path>` entries that the operator opened for this slug
 * @throws Problem egress_refused when the port is closed
 */
export function chooseWay(target: Target, allow: readonly string[], surroundings: Surroundings): Way {
  const socket = allow.find((entry) => entry.startsWith('unix:') && unixName(entry) === target.host);
  if (socket !== undefined) return { kind: 'unix', path: socket.slice('unix:'.length) };
  if (allow.some((entry) => entry.toLowerCase() === target.name)) return { kind: 'opened' };
  if (isOwn(target, surroundings)) {
    // Its bytes could be those of a proxy that the edge trusts.
    if (target.kind === 'tcp') throw refused(target, 'connect() does not lead to this host itself, fetch() does');
    const tls = target.kind === 'https' ? surroundings.edgeTlsAddress : undefined;
    return { kind: 'edge', ...(tls ?? surroundings.edgeAddress) };
  }
  if (target.host === 'localhost' || target.host.endsWith('.localhost')) {
    throw refused(target, 'that is this machine itself');
  }
  const { connectPorts } = surroundings;
  const open = target.kind === 'tcp' && connectPorts ? connectPorts.includes(target.port) : target.port !== MAIL_PORT;
  if (!open) throw refused(target, `port ${target.port} is closed`);
  return { kind: 'public' };
}

/** `unix:/run/speech-engine.sock` is reached as `http://speech-engine.internal/`, at any port. */
export function unixName(entry: string): string {
  return `${basename(entry.slice('unix:'.length), '.sock').toLowerCase()}.internal`;
}

export function refused(target: Target, why: string): Problem {
  return new Problem(
    'egress_refused',
    `${target.name} may not be reached from here: ${why}. Only public addresses are open to handlers.`,
    { extensions: { target: target.name } },
  );
}

/** Own names lead to the edge on the public ports alone: the operator's port on the same name stays closed. */
function isOwn(target: Target, { ownHosts, baseDomain, edgeAddress, edgeTlsAddress }: Surroundings): boolean {
  const suffix = `.${baseDomain.replace(/^\./, '')}`;
  const ports = new Set([80, 443, edgeAddress.port]);
  if (edgeTlsAddress) ports.add(edgeTlsAddress.port);
  const names = new Set<string>();
  for (const own of ownHosts) {
    const [, name = own, port] = /^(.*?)(?::(\d+))?$/.exec(own) ?? [];
    names.add(name.replace(/^\[(.*)\]$/, '$1'));
    if (port !== undefined) ports.add(Number(port));
  }
  return ports.has(target.port) && (names.has(target.host) || target.host.endsWith(suffix));
}
