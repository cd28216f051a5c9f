/** Certificates by ACME, composed from the configuration. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import { AcmeAuthority } from './acme-authority.ts';
import { ChallengeBoard } from './challenge-board.ts';
import { dnsHook } from './dns-hook.ts';
import { CertificateRenewer, type RenewerDeps } from './renewer.ts';

export interface AcmeCertificates {
  renewer: CertificateRenewer;
  /** Control answers `/.well-known/acme-challenge/<token>` from it, on every host name. */
  board: ChallengeBoard;
}

export interface AcmeDeps extends Pick<RenewerDeps, 'wanted' | 'outcome'> {
  folder: string;
  config: Config['tls']['acme'];
  clock: Clock;
  log: Logger;
  edges: {
    certificateChanged(certificate: { name: string }): Promise<unknown>;
    setTlsChallenge(challenge: { name: string; pem: string | undefined }): Promise<unknown>;
  };
}

export async function acmeCertificates(deps: AcmeDeps): Promise<AcmeCertificates> {
  const { folder, config, clock, log, edges, wanted, outcome } = deps;
  const board = new ChallengeBoard();
  const authority = new AcmeAuthority({
    directory: config.directory,
    email: config.email,
    authorityPem: config.caFile ? await readFile(config.caFile, 'utf8') : undefined,
    preferred: config.challenge,
    accountKeyFile: path.join(folder, 'account.key'),
    responders: {
      http: async (_name, token, body) => board.show(token, body),
      tls: async (name, pem) => {
        await edges.setTlsChallenge({ name, pem });
      },
      dns: config.dnsHook ? dnsHook(config.dnsHook) : undefined,
    },
  });
  const renewer = new CertificateRenewer({
    folder,
    authority,
    clock,
    log,
    wanted,
    outcome,
    changed: async (name) => {
      await edges.certificateChanged({ name });
    },
  });
  return { renewer, board };
}
