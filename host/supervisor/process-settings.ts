/** Computes the `init` message of each child process from the configuration. Pure functions. */
import { TrustedProxies } from '../edge/caller.ts';
import type { Config } from '../shared/config.ts';
import type { EdgeInit, EdgeTls, EgressInit, StorageInit } from '../shared/contracts.ts';
import type { Folders } from './folders.ts';

export function storageInit(config: Config, folders: Folders, clockOffsetMs: number): StorageInit {
  const { objects, s3 } = config.storage;
  const { database, storage } = config.cluster;
  return {
    root: folders.tenants,
    objects: objects === 's3' ? { kind: 's3', ...s3 } : { kind: 'disk' },
    cluster: database === '' ? undefined : { database, storage },
    clockOffsetMs,
  };
}

export function edgeInit(
  config: Config,
  controlSocket: string,
  tls: EdgeTls,
  clockOffsetMs: number,
  ownCallerKey: string,
  challengeKey: string,
  blockedRanges: string[],
): EdgeInit {
  return {
    controlSocket,
    ownCallerKey,
    challengeKey,
    blockedRanges,
    publicUrl: config.publicUrl || undefined,
    baseDomain: config.baseDomain,
    trustedProxies: config.trustedProxies,
    maxHeaderBytes: config.edge.maxHeaderBytes,
    reservedSlugs: config.slugs.reserved,
    controlMaxBodyBytes: 2 * config.runtime.maxCodeBytes + 2 * 1_048_576,
    tls,
    clockOffsetMs,
  };
}

/** @param publicUrl origin under which the host is known */
export function egressInit(
  config: Config,
  publicUrl: string,
  port: number,
  tlsPort: number | undefined,
  clockOffsetMs: number,
  ownCallerKey: string,
  extraAuthority?: string,
): EgressInit {
  const { host } = new URL(publicUrl);
  return {
    ownHosts: [...new Set([host, `localhost:${port}`, config.baseDomain, `${config.baseDomain}:${port}`])],
    baseDomain: `.${config.baseDomain}`,
    edgeAddress: { host: reachable(config.host), port },
    ...(tlsPort === undefined ? {} : { edgeTlsAddress: { host: reachable(config.host), port: tlsPort } }),
    edgeProxyHeader:
      config.tls.proxyProtocol && new TrustedProxies(config.trustedProxies).trusts(reachable(config.host)),
    ownCallerKey,
    connectPorts: undefined,
    extraAuthority,
    clockOffsetMs,
  };
}

/** A wildcard address is reached by loopback. */
function reachable(host: string): string {
  return host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
}

/** Whether an address is reachable from this machine only. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}
