/** Certificates by ACME, composed from the configuration. */
import { readFile } from 'node:fs/promises';
import type { Logger } from 'pino';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import { AcmeAuthority } from './acme-authority.ts';
import type { ChallengeResponders } from './authority.ts';
import type { ChallengeBoard } from './challenge-board.ts';
import { dnsHook } from './dns-hook.ts';
import { CertificateRenewer, type RenewerDeps } from './renewer.ts';
import { folderStore } from './store.ts';

/** Where certificates are kept, who orders them, and where they and proofs are shown. */
export interface CertificatePlace extends Pick<RenewerDeps, 'store' | 'turn' | 'changed'> {
  proofs: Pick<ChallengeResponders, 'http' | 'tls'>;
}

/** The edges of this process. */
export interface ShowingEdges {
  certificateChanged(certificate: { name: string }): Promise<unknown>;
  setTlsChallenge(challenge: { name: string; pem: string | undefined }): Promise<unknown>;
}

/** @param board control answers `/.well-known/acme-challenge/<token>` from it, on every host name */
export function placeOfBox(folder: string, board: ChallengeBoard, edges: ShowingEdges): CertificatePlace {
  return {
    store: folderStore(folder),
    turn: (work) => work(),
    changed: async (name) => void (await edges.certificateChanged({ name })),
    proofs: {
      http: async (_name, token, body) => board.show(token, body),
      tls: async (name, pem) => void (await edges.setTlsChallenge({ name, pem })),
    },
  };
}

export interface AcmeDeps extends Pick<RenewerDeps, 'wanted' | 'outcome'> {
  place: CertificatePlace;
  config: Config['tls']['acme'];
  clock: Clock;
  log: Logger;
}

export async function acmeCertificates({ place, config, ...deps }: AcmeDeps): Promise<CertificateRenewer> {
  const authority = new AcmeAuthority({
    directory: config.directory,
    email: config.email,
    authorityPem: config.caFile ? await readFile(config.caFile, 'utf8') : undefined,
    preferred: config.challenge,
    store: place.store,
    responders: { ...place.proofs, dns: config.dnsHook ? dnsHook(config.dnsHook) : undefined },
  });
  return new CertificateRenewer({ ...deps, ...place, authority });
}
