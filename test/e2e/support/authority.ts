/** A certificate authority (Debian's pebble) on loopback, and the zone in which it and the host look names up. */
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startDns } from './dns-server.ts';
import { freePort } from './ports.ts';
import { type Program, startProgram } from './programs.ts';
import { until } from './until.ts';

export interface Zone {
  /** `host:port` of the DNS server. */
  address: string;
  /** Addresses of names that are not at 127.0.0.1. */
  addresses: Map<string, string[]>;
  texts: Map<string, string[]>;
  stop(): void;
}

/** Every name is at 127.0.0.1 unless the test says otherwise. */
export async function startZone(): Promise<Zone> {
  const addresses = new Map<string, string[]>();
  const texts = new Map<string, string[]>();
  const server = await startDns(
    (name, type) => (type === 'A' ? (addresses.get(name.toLowerCase()) ?? ['127.0.0.1']) : []),
    (name) => texts.get(name) ?? [],
  );
  return { address: server.address, addresses, texts, stop: server.stop };
}

export interface Authority {
  directory: string;
  /** Where the authority's own HTTPS certificate is. */
  caFile: string;
  /** Certificates that it issues end in this root, which is new after every start. */
  rootFile: string;
  /** What it logged, which names every name that it was asked to validate. */
  output(): string;
  stop(): Promise<void>;
  start(): Promise<void>;
  close(): Promise<void>;
}

export interface AuthorityOptions {
  /** Where it validates: ports that stand for 80 and 443. */
  httpPort: number;
  tlsPort: number;
  zone: Zone;
  validityDays?: number;
}

/** @returns an authority that is not started yet */
export async function openAuthority(options: AuthorityOptions): Promise<Authority> {
  const { httpPort, tlsPort, zone, validityDays = 60 } = options;
  const folder = await mkdtemp(path.join(tmpdir(), 'authority-'));
  const [port, managementPort] = [await freePort(), await freePort()];
  const [caFile, keyFile, rootFile] = ['ca.crt', 'ca.key', 'root.crt'].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ];
  selfSigned(['127.0.0.1'], { cert: caFile, key: keyFile });
  await writeFile(
    path.join(folder, 'pebble.json'),
    JSON.stringify({
      pebble: {
        listenAddress: `127.0.0.1:${port}`,
        managementListenAddress: `127.0.0.1:${managementPort}`,
        certificate: caFile,
        privateKey: keyFile,
        httpPort,
        tlsPort,
        ocspResponderURL: '',
        externalAccountBindingRequired: false,
        certificateValidityPeriod: validityDays * 86_400,
      },
    }),
  );
  let program: Program | undefined;
  let earlier = '';
  const stop = async () => {
    await program?.stop();
    earlier += program?.output() ?? '';
    program = undefined;
  };
  return {
    directory: `https://127.0.0.1:${port}/dir`,
    caFile,
    rootFile,
    output: () => earlier + (program?.output() ?? ''),
    stop,
    async start() {
      program = await startProgram(
        'pebble',
        ['-config', path.join(folder, 'pebble.json'), '-dnsserver', zone.address],
        port,
        { PEBBLE_VA_NOSLEEP: '1', PEBBLE_AUTHZREUSE: '0' },
      );
      // It listens there a moment later.
      const root = () => fetchText(`https://127.0.0.1:${managementPort}/roots/0`).catch(() => undefined);
      await writeFile(rootFile, await until(root, 'the root of the authority'));
    },
    async close() {
      await stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A self-signed certificate for names and addresses, written to two files. */
export function selfSigned(names: string[], files: { cert: string; key: string }): void {
  const alternatives = names.map((name) => (/^[0-9.]+$/.test(name) ? `IP:${name}` : `DNS:${name}`)).join(',');
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  const subject = ['-subj', '/CN=test', '-addext', `subjectAltName=${alternatives}`];
  execFileSync('openssl', ['req', '-x509', ...curve, ...subject, '-keyout', files.key, '-out', files.cert], {
    stdio: 'ignore',
  });
}

function fetchText(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get(url, { rejectUnauthorized: false, agent: false }, (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve(text));
    }).on('error', reject);
  });
}
