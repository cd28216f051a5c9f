/** Certificates from a real ACME authority (pebble) on loopback, served by a real edge. Skipped where pebble is missing, but not in CI. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ChallengeBoard } from '../../host/certificates/challenge-board.ts';
import { acmeCertificates, placeOfBox } from '../../host/certificates/index.ts';
import type { CertificateRenewer } from '../../host/certificates/renewer.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { type Harness, listening, route, startHarness, startWorkerd, type Workerd } from './edge/harness.ts';
import { freePort } from './support/ports.ts';
import { available } from './support/programs.ts';
import { until } from './support/until.ts';

const MODULE = `export default { async fetch(request) { return Response.json({ url: request.url }) } };`;
const DAY = 86_400_000;

describe.skipIf(!available('pebble', 'pebble-challtestsrv', 'openssl'))('with pebble', () => {
  let folder: string;
  let harness: Harness;
  let workerd: Workerd;
  let httpsPort: number;
  let dnsManagement: number;
  let directoryPort: number;
  let dnsPort: number;
  const programs: ChildProcess[] = [];
  const clock = new AdjustableClock();
  let names: string[] = [];
  const outcomes: { name: string; reason: string | undefined }[] = [];
  let certificates: CertificateRenewer;
  const board = new ChallengeBoard();
  let pebble: ChildProcess;

  async function startPebble(): Promise<void> {
    pebble = spawn('pebble', ['-config', join(folder, 'pebble.json'), '-dnsserver', `127.0.0.1:${dnsPort}`], {
      env: { PATH: process.env.PATH ?? '', PEBBLE_VA_NOSLEEP: '1', PEBBLE_AUTHZREUSE: '0' },
      stdio: 'ignore',
    });
    programs.push(pebble);
    await until(() => reachable(directoryPort));
  }

  function reachable(port: number): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => {
        socket.destroy();
        resolve(true);
      });
      socket.on('error', () => resolve(false));
    });
  }

  async function dns(action: string, body: object): Promise<void> {
    const response = await fetch(`http://127.0.0.1:${dnsManagement}/${action}`, {
      method: 'POST',
      body: JSON.stringify(body),
    });
    expect(response.ok).toBe(true);
  }

  /** A request as a stock client makes it, trusting pebble's root alone. */
  async function get(name: string, ca: string): Promise<{ url: string; serial: string }> {
    return await new Promise((resolve, reject) => {
      const asked = httpsRequest(
        { host: '127.0.0.1', port: httpsPort, servername: name, headers: { host: name }, ca, agent: false },
        (response) => {
          const socket = response.socket as unknown as { getPeerCertificate(): { serialNumber: string } };
          const serial = socket.getPeerCertificate().serialNumber;
          let text = '';
          response.on('data', (chunk) => {
            text += chunk;
          });
          response.on('end', () => resolve({ ...(JSON.parse(text) as { url: string }), serial }));
        },
      );
      asked.on('error', reject);
      asked.end();
    });
  }

  let root: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'acme-'));
    await mkdir(join(folder, 'certificates'));
    execFileSync(
      'openssl',
      [
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:P-256',
        '-nodes',
        '-days',
        '2',
        '-subj',
        '/CN=127.0.0.1',
        '-addext',
        'subjectAltName=IP:127.0.0.1',
        '-keyout',
        join(folder, 'pebble.key'),
        '-out',
        join(folder, 'pebble.crt'),
      ],
      { stdio: 'ignore' },
    );
    harness = await startHarness({
      baseDomain: 'apps.test',
      tls: { mode: 'acme', port: 8443, redirect: true, certificates: [], folder: join(folder, 'certificates') },
    });
    const server = await listening();
    httpsPort = (server.address() as AddressInfo).port;
    await harness.edge.call('listen', { kind: 'https' }, server);
    server.close();
    workerd = await startWorkerd(harness.folder, 'acme', MODULE);
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    await harness.edge.call('setRoutes', [
      route('one', { domains: ['one.test', 'away.test', 'alpn.test'] }),
      route('two', { domains: ['two.test'] }),
    ]);
    [dnsPort, dnsManagement, directoryPort] = [await freePort(), await freePort(), await freePort()];
    const managementPort = await freePort();
    programs.push(
      spawn(
        'pebble-challtestsrv',
        [
          '-dns01',
          `127.0.0.1:${dnsPort}`,
          '-management',
          `127.0.0.1:${dnsManagement}`,
          '-http01',
          '',
          '-https01',
          '',
          '-tlsalpn01',
          '',
          '-defaultIPv4',
          '127.0.0.1',
          '-defaultIPv6',
          '',
        ],
        { stdio: 'ignore' },
      ),
    );
    await writeFile(
      join(folder, 'pebble.json'),
      JSON.stringify({
        pebble: {
          listenAddress: `127.0.0.1:${directoryPort}`,
          managementListenAddress: `127.0.0.1:${managementPort}`,
          certificate: join(folder, 'pebble.crt'),
          privateKey: join(folder, 'pebble.key'),
          httpPort: harness.port,
          tlsPort: httpsPort,
          ocspResponderURL: '',
          externalAccountBindingRequired: false,
        },
      }),
    );
    await startPebble();
    root = await new Promise<string>((resolve, reject) => {
      httpsRequest(
        { host: '127.0.0.1', port: managementPort, path: '/roots/0', rejectUnauthorized: false },
        (response) => {
          let text = '';
          response.on('data', (chunk) => {
            text += chunk;
          });
          response.on('end', () => resolve(text));
        },
      )
        .on('error', reject)
        .end();
    });
    await until(() =>
      fetch(`http://127.0.0.1:${dnsManagement}/`).then(
        () => true,
        () => false,
      ),
    );
    certificates = await renewer('http-01');
    harness.onControl = (request, response) => {
      const proof = board.proof((request.url ?? '').split('/').at(-1) ?? '');
      response.statusCode = proof === undefined ? 404 : 200;
      response.end(proof);
    };
  });

  afterAll(async () => {
    await certificates?.stop();
    for (const program of programs) program.kill('SIGKILL');
    await workerd?.stop();
    await harness?.close();
    await rm(folder, { recursive: true, force: true });
  });

  async function renewer(challenge: 'http-01' | 'tls-alpn-01', dnsHook = ''): Promise<CertificateRenewer> {
    const made = await acmeCertificates({
      place: placeOfBox(join(folder, 'certificates'), board, {
        certificateChanged: (changed) => harness.edge.call('certificateChanged', changed),
        setTlsChallenge: (changed) => harness.edge.call('setTlsChallenge', changed),
      }),
      config: {
        directory: `https://127.0.0.1:${directoryPort}/dir`,
        email: 'operator@example.com',
        caFile: join(folder, 'pebble.crt'),
        challenge,
        dnsHook,
      },
      clock,
      log: pino({ level: 'silent' }),
      wanted: async () => names,
      outcome: async (name, { reason }) => {
        outcomes.push({ name, reason });
      },
    });
    await made.start();
    return made;
  }

  async function want(...wanted: string[]): Promise<void> {
    names = wanted;
    outcomes.length = 0;
    certificates.wake();
    await certificates.settled();
  }

  test('two names at once by HTTP-01, served to stock clients', async () => {
    await want('one.test', 'two.test');
    expect(outcomes).toEqual(
      expect.arrayContaining([
        { name: 'one.test', reason: undefined },
        { name: 'two.test', reason: undefined },
      ]),
    );
    expect((await get('one.test', root)).url).toBe('https://one.test/');
    expect((await get('two.test', root)).url).toBe('https://two.test/');
  });

  test('a renewal at two thirds of life is shown at once', async () => {
    const before = (await get('one.test', root)).serial;
    const { validFrom = 0, validTo = 0 } = certificates.status('one.test') ?? {};
    clock.setOffset(((validTo - validFrom) * 2) / 3 + DAY);
    await certificates.settled();
    expect((await get('one.test', root)).serial).not.toBe(before);
    clock.setOffset(0);
    await certificates.settled();
  });

  test('a name that points elsewhere is never issued, and the reason is told', async () => {
    await dns('add-a', { host: 'away.test', addresses: ['127.0.0.9'] });
    await want('one.test', 'two.test', 'away.test');
    expect(outcomes).toEqual([{ name: 'away.test', reason: expect.stringMatching(/.+/) }]);
    expect(certificates.has('away.test')).toBe(false);
    await expect(get('away.test', root)).rejects.toThrow();
  });

  test('an authority that is away for an hour loses nothing', async () => {
    const gone = new Promise((resolve) => pebble.once('exit', resolve));
    pebble.kill('SIGKILL');
    await gone;
    await want('one.test', 'two.test', 'alpn.test');
    expect(outcomes[0]).toMatchObject({
      name: 'alpn.test',
      reason: expect.stringMatching(/cannot be reached: connect ECONNREFUSED/),
    });
    expect((await get('two.test', root)).url).toBe('https://two.test/');
    clock.setOffset(3_600_000);
    await certificates.settled();
    await startPebble();
    clock.setOffset(2 * 3_600_000);
    await certificates.settled();
    expect(certificates.has('alpn.test')).toBe(true);
    clock.setOffset(0);
    await certificates.settled();
  });

  test('TLS-ALPN-01, with the account that is kept', async () => {
    await certificates.stop();
    const account = await readFile(join(folder, 'certificates', 'account.key'), 'utf8');
    await rm(join(folder, 'certificates', 'alpn.test.pem'));
    names = [];
    certificates = await renewer('tls-alpn-01');
    // No HTTP way to it, so that only TLS can have shown it.
    harness.onControl = (_request, response) => response.writeHead(404).end();
    await want('alpn.test');
    expect(outcomes).toEqual([{ name: 'alpn.test', reason: undefined }]);
    expect(await readFile(join(folder, 'certificates', 'account.key'), 'utf8')).toBe(account);
  });

  test('a wildcard by a DNS hook', async () => {
    await certificates.stop();
    const hook = join(folder, 'hook.mjs');
    await writeFile(
      hook,
      `const [action, host, value] = process.argv.slice(2);
       const path = action === 'set' ? 'set-txt' : 'clear-txt';
       await fetch('http://127.0.0.1:${dnsManagement}/' + path, { method: 'POST', body: JSON.stringify({ host: host + '.', value }) });`,
    );
    certificates = await renewer('http-01', `${process.execPath} ${hook}`);
    await want('*.apps.test');
    expect(outcomes).toEqual([{ name: '*.apps.test', reason: undefined }]);
    const socket = connectTls({
      host: '127.0.0.1',
      port: httpsPort,
      servername: 'one.apps.test',
      rejectUnauthorized: false,
    });
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    expect(socket.getPeerCertificate().subjectaltname).toBe('DNS:*.apps.test');
    socket.destroy();
  });

  test('detached names are not served any more', async () => {
    await want();
    await expect(get('two.test', root)).rejects.toThrow();
    await expect(get('one.test', root)).rejects.toThrow();
  });
});
