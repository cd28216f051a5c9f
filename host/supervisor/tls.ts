/**
 * TLS of the host: the HTTPS port, what edges are told of it, and with `tls.mode = acme` the certificate renewer,
 * which asks for the host's own names and for verified domains of tenants, and for nothing else.
 */
import { randomBytes, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import type { Logger } from 'pino';
import { ChallengeBoard } from '../certificates/challenge-board.ts';
import type { ShowingEdges } from '../certificates/index.ts';
import type { CertificateRenewer } from '../certificates/renewer.ts';
import type { RoutePublisher } from '../control/route-publisher.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import { consoleName } from '../shared/console-place.ts';
import type { EdgeTls } from '../shared/contracts.ts';
import type { Edges } from './edges.ts';
import type { Folders } from './folders.ts';
import { bindSocket, type ListeningSocket } from './listening-socket.ts';
import type { Stores } from './stores.ts';

const TICKET_KEY_BYTES = 48;

export interface TlsParts {
  config: Config;
  publicUrl: string;
  folders: Folders;
  clock: Clock;
  log: Logger;
  stores: Stores;
  edges: Edges;
  routes: RoutePublisher;
}

export interface CertificateView {
  names: string[];
  validTo: number | undefined;
  reason: string | undefined;
}

export interface Tls {
  /** What edges are told at their start. */
  edge: EdgeTls;
  socket: ListeningSocket | undefined;
  /** Whether a verified domain can be served at once, or waits for its certificate. */
  servesAtOnce(domain: string): boolean;
  /** The wanted names have changed. */
  namesChanged(): void;
  /** What there is, and why there is none; ms since the epoch. */
  certificates(): Promise<CertificateView[]>;
  /** The answer to an HTTP-01 challenge. */
  challenge(token: string): string | undefined;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** @throws Problem when the HTTPS port is taken */
export async function openTls(deps: TlsParts): Promise<Tls> {
  const { mode, port, redirect, proxyProtocol, certificates } = deps.config.tls;
  const socket = mode === 'off' ? undefined : bindSocket(deps.config.host, port, '--tls-port');
  const acme = mode === 'acme' ? await openAcme(deps) : undefined;
  return {
    edge: {
      mode,
      redirect,
      proxyProtocol,
      certificates,
      ...(socket ? { port: socket.port, ...publicPort(deps.config.publicUrl) } : {}),
      ...(acme ? { folder: deps.folders.certificates } : {}),
      ticketKeys: randomBytes(TICKET_KEY_BYTES),
    },
    socket,
    servesAtOnce: (domain) => mode === 'off' || byFile(certificates, domain) || (acme?.renewer.has(domain) ?? false),
    namesChanged: () => acme?.renewer.wake(),
    certificates: async () => [
      ...(mode === 'off' ? [] : await Promise.all(certificates.map(certificateOfFile))),
      ...(acme?.renewer.list() ?? []).map(({ name, validTo, reason }) => ({ names: [name], validTo, reason })),
    ],
    challenge: (token) => acme?.board.proof(token),
    start: async () => acme?.start(),
    async stop() {
      await acme?.renewer.stop();
      socket?.close();
    },
  };
}

interface Acme {
  renewer: CertificateRenewer;
  board: ChallengeBoard;
  start(): Promise<void>;
}

async function openAcme(deps: TlsParts): Promise<Acme> {
  // Loaded only where it is used: it would be a tenth of every start.
  const { acmeCertificates, placeOfBox } = await import('../certificates/index.ts');
  const { config, folders, clock, log, routes } = deps;
  const { domains, deployments, cluster, registry, keyFiles } = deps.stores;
  const board = new ChallengeBoard();
  const folder = folders.certificates;
  const edges: ShowingEdges = {
    certificateChanged: (certificate) => deps.edges.each('certificateChanged', certificate),
    setTlsChallenge: (challenge) => deps.edges.each('setTlsChallenge', challenge),
  };
  const parts = { registry, keyFiles, folder, board, edges };
  const shared = cluster && (await (await import('./shared-certificates.ts')).SharedCertificates.open(parts));
  const renewer = await acmeCertificates({
    place: shared ?? placeOfBox(folder, board, edges),
    config: config.tls.acme,
    clock,
    log,
    wanted: async () =>
      [...ownNames(deps), ...(await domains.servableNames())].filter((name) => !byFile(config.tls.certificates, name)),
    async outcome(name, state) {
      const valid = state.validTo !== undefined && state.validTo > clock.now();
      const reason = state.reason ? `certificate: ${state.reason}` : null;
      const row = await domains.setServed(name, valid ? 'active' : 'verified', reason);
      if (!row) return;
      const deployment = await deployments.byTenant(row.tenant);
      if (deployment) await routes.push(deployment.slug);
    },
  });
  return { renewer, board, start: () => (shared ? shared.start(renewer) : renewer.start()) };
}

/** The host's own public name, and all subdomains where a DNS-01 hook can prove them; else that of the console. */
function ownNames({ config, publicUrl }: TlsParts): string[] {
  const { hostname } = new URL(publicUrl);
  const isPublic = config.publicUrl !== '' && isIP(hostname) === 0 && hostname !== 'localhost';
  const consoleHost = consoleName(config.baseDomain);
  const names = isPublic ? [hostname] : [];
  if (consoleHost !== undefined) names.push(config.tls.acme.dnsHook === '' ? consoleHost : `*.${config.baseDomain}`);
  return [...new Set(names)];
}

async function certificateOfFile({ names, cert }: CertificateFiles[number]): Promise<CertificateView> {
  try {
    const { validTo } = new X509Certificate(await readFile(cert));
    return { names, validTo: Date.parse(validTo), reason: undefined };
  } catch {
    return { names, validTo: undefined, reason: `${cert} cannot be read` };
  }
}

type CertificateFiles = Config['tls']['certificates'];

function byFile(certificates: CertificateFiles, domain: string): boolean {
  return certificates.some(({ names }) => names.some((name) => covers(name.toLowerCase(), domain)));
}

/** Whether a certificate's name stands for a domain; `*.` stands for one label (RFC 6125, 6.4.3). */
function covers(name: string, domain: string): boolean {
  if (name === domain || !name.startsWith('*.')) return name === domain;
  return domain.slice(domain.indexOf('.') + 1) === name.slice(2);
}

/** The port that callers see, where the public URL says it; a firewall may map it to ours. */
function publicPort(publicUrl: string): { publicPort?: number } {
  if (!publicUrl.startsWith('https:')) return {};
  return { publicPort: Number(new URL(publicUrl).port || 443) };
}
