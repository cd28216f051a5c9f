/** What an ACME authority that is hostile, or broken, can do to the host: a failure in time, and nothing else. */

import { execFileSync } from 'node:child_process';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createPlain } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { AcmeAuthority } from '../../host/certificates/acme-authority.ts';
import { folderStore, orderFile } from '../../host/certificates/store.ts';
import { selfSigned } from '../e2e/support/authority.ts';

const NAME = 'one.example.com';

type Lie = (request: { path: string; csr: string | undefined }) => Lied | undefined;
interface Lied {
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
  /** Sends the same for as long as the connection lasts. */
  endless?: { bytes: number; everyMs: number };
}

let folder: string;
let server: Server;
let origin: string;
let lie: Lie;
let sent: number;
let asked: string[];
let shown: string[];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hostile-authority-'));
  selfSigned(['127.0.0.1'], { cert: join(folder, 'ca.crt'), key: join(folder, 'ca.key') });
  const files = { cert: readFileSync(join(folder, 'ca.crt')), key: readFileSync(join(folder, 'ca.key')) };
  server = createServer(files, (request, response) => {
    const path = request.url ?? '';
    asked.push(path);
    let text = '';
    request.on('data', (data) => {
      text += data;
    });
    request.on('end', () => {
      const payload = text === '' ? '' : Buffer.from(JSON.parse(text).payload, 'base64url').toString();
      const csr = payload.includes('"csr"') ? (JSON.parse(payload).csr as string) : undefined;
      const { status = 200, headers = {}, body, endless } = lie({ path, csr }) ?? honest(path, csr);
      response.on('error', () => {});
      response.writeHead(status, {
        'replay-nonce': createHash('sha256').update(String(Math.random())).digest('base64url'),
        'content-type': typeof body === 'string' ? 'application/pem-certificate-chain' : 'application/json',
        location: `${origin}/account`,
        ...headers,
      });
      if (!endless) return response.end(typeof body === 'string' ? body : JSON.stringify(body));
      const part = Buffer.alloc(endless.bytes, ' ');
      const timer = setInterval(() => {
        if (response.writableLength < 1_000_000 && response.write(part)) sent += part.length;
      }, endless.everyMs);
      response.on('close', () => clearInterval(timer));
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
beforeEach(() => {
  [lie, sent, asked, shown] = [() => undefined, 0, [], []];
  rmSync(join(folder, orderFile(NAME)), { force: true });
});
afterEach(() => server.closeAllConnections());
afterAll(() => {
  server.close();
  rmSync(folder, { recursive: true, force: true });
});

const authorization = (value = NAME) => ({
  identifier: { type: 'dns', value },
  status: 'pending',
  challenges: [{ type: 'http-01', url: `${origin}/challenge`, token: 'token', status: 'pending' }],
});
const order = (status: string) => ({
  status,
  authorizations: [`${origin}/authorization`],
  finalize: `${origin}/finalize`,
  certificate: `${origin}/certificate`,
});

let request = '';
function honest(path: string, csr: string | undefined): Lied {
  if (csr !== undefined) request = csr;
  const resources = { newNonce: '/nonce', newAccount: '/new-account', newOrder: '/new-order' };
  const urls = Object.fromEntries(Object.entries(resources).map(([name, at]) => [name, `${origin}${at}`]));
  switch (path) {
    case '/dir':
      return { body: urls };
    case '/new-account':
      return { status: 201, body: { status: 'valid' } };
    case '/new-order':
      return { status: 201, headers: { location: `${origin}/order` }, body: order('pending') };
    case '/authorization':
      return { body: authorization() };
    case '/challenge':
      return { body: { ...authorization().challenges[0], status: 'valid' } };
    case '/finalize':
      return { body: order('valid') };
    case '/certificate':
      return { body: certificate(NAME) };
    default:
      return { body: {} };
  }
}

/** Of the key that was asked for, unless of another. */
function certificate(name: string, key = publicKeyOfRequest()): string {
  const at = (file: string) => join(folder, file);
  writeFileSync(at('key.pub'), key);
  writeFileSync(at('extensions'), `subjectAltName=DNS:${name}\n`);
  const own = ['-CA', at('ca.crt'), '-CAkey', at('ca.key'), '-force_pubkey', at('key.pub'), '-days', '60'];
  execFileSync('openssl', ['req', '-new', '-key', at('ca.key'), '-subj', '/CN=x', '-out', at('any.csr')]);
  execFileSync(
    'openssl',
    ['x509', '-req', '-in', at('any.csr'), ...own, '-extfile', at('extensions'), '-out', at('issued.crt')],
    { stdio: 'ignore' },
  );
  return readFileSync(at('issued.crt'), 'utf8');
}
function publicKeyOfRequest(): Buffer {
  return execFileSync('openssl', ['req', '-inform', 'DER', '-pubkey', '-noout'], {
    input: Buffer.from(request, 'base64url'),
  });
}

/** @param requestMs short only where a failure is wanted */
function issue(requestMs = 30_000): Promise<string> {
  return authorityOf(requestMs).issue(NAME);
}

function authorityOf(requestMs = 30_000): AcmeAuthority {
  return new AcmeAuthority({
    directory: `${origin}/dir`,
    email: '',
    authorityPem: readFileSync(join(folder, 'ca.crt'), 'utf8'),
    preferred: 'http-01',
    store: folderStore(folder),
    requestMs,
    responders: {
      http: async (shownName, _token, body) => {
        if (body !== undefined) shown.push(shownName);
      },
      tls: async () => {},
      dns: undefined,
    },
  });
}

test('an honest one is obeyed', async () => {
  expect(await issue()).toMatch(/^-----BEGIN PRIVATE KEY-----[\s\S]+-----BEGIN CERTIFICATE-----/);
  expect(shown).toEqual([NAME]);
});

test('an account whose key is removed is replaced, without a restart', async () => {
  const authority = authorityOf();
  await authority.issue(NAME);
  const accounts = () => asked.filter((path) => path === '/new-account').length;
  const before = accounts();
  rmSync(join(folder, orderFile(NAME)));
  await authority.issue(NAME);
  expect(accounts()).toBe(before);
  rmSync(join(folder, orderFile(NAME)));
  rmSync(join(folder, 'account.key'));
  await authority.issue(NAME);
  expect(accounts()).toBe(before + 1);
});

const everywhere = ['/dir', '/new-account', '/new-order', '/authorization', '/challenge', '/finalize', '/certificate'];
test.each(everywhere)('an endless answer at %s ends, fast or slow', async (at) => {
  lie = ({ path }) => (path === at ? { endless: { bytes: 65_536, everyMs: 0 } } : undefined);
  await expect(issue()).rejects.toThrow();
  expect(sent).toBeLessThan(20_000_000);
  lie = ({ path }) => (path === at ? { endless: { bytes: 1, everyMs: 20 } } : undefined);
  await expect(issue(1_000)).rejects.toThrow();
});

test('no redirect and no address without TLS is followed to an address inside', async () => {
  const visits: string[] = [];
  const inside = createPlain((visit, response) => {
    visits.push(visit.url ?? '');
    response.end('{}');
  });
  await once(inside.listen(0, '127.0.0.1'), 'listening');
  const location = `http://127.0.0.1:${(inside.address() as AddressInfo).port}/metadata`;
  for (const at of everywhere) {
    lie = ({ path }) => (path === at ? { status: 307, headers: { location } } : undefined);
    await issue().catch(() => {});
  }
  lie = ({ path }) =>
    path === '/dir' ? { body: { newNonce: location, newAccount: location, newOrder: location } } : undefined;
  await expect(issue()).rejects.toThrow();
  inside.close();
  expect(visits).toEqual([]);
});

test('a proof of another name is not shown', async () => {
  lie = ({ path }) => (path === '/authorization' ? { body: authorization('other.example.com') } : undefined);
  await expect(issue()).rejects.toThrow('another name');
  expect(shown).toEqual([]);
});

test('Retry-After of a century does not hold the others up', async () => {
  const headers = { 'retry-after': '3153600000' };
  lie = ({ path }) => (path === '/new-order' ? { status: 429, headers, body: { detail: 'too many' } } : undefined);
  await expect(issue()).rejects.toMatchObject({ retryAfterMs: 3_600_000 });
});

test('of an order of thousands of authorizations none is asked for', async () => {
  const authorizations = Array.from({ length: 5_000 }, (_, at) => `${origin}/many/${at}`);
  lie = ({ path }) =>
    path === '/new-order' ? { status: 201, body: { ...order('pending'), authorizations } } : undefined;
  await expect(issue()).rejects.toThrow('more authorizations');
  expect(asked.filter((path) => path.startsWith('/many'))).toEqual([]);
});

test('a certificate that does not serve the name is refused before it takes the place of one that does', async () => {
  const other = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ type: 'spki', format: 'pem' });
  const answers: [string, () => unknown][] = [
    ['does not cover', () => certificate('other.example.com')],
    ['another key', () => certificate(NAME, Buffer.from(other))],
    ['no certificate', () => 'not a certificate'],
    ['no certificate', () => ''],
  ];
  for (const [reason, body] of answers) {
    lie = ({ path }) => (path === '/certificate' ? { body: body() } : undefined);
    await expect(issue()).rejects.toThrow(reason);
  }
});

describe('an order that was not seen to its end', () => {
  const kept = () => readFileSync(join(folder, orderFile(NAME)), 'utf8');
  /** Answers for the order what the authority has made of it by then. */
  const withOrder = (status: string, then: Lie = () => undefined) => {
    lie = (request) => (request.path === '/order' ? { body: order(status) } : then(request));
  };
  const refusing = (at: string) => (request: { path: string }) =>
    request.path === at ? { status: 500, body: { detail: 'away' } } : undefined;

  test.each([
    ['/challenge', 'pending'],
    ['/finalize', 'ready'],
    ['/certificate', 'valid'],
  ])('at %s goes on, by the next that comes, with its key', async (at, status) => {
    lie = refusing(at);
    await expect(issue()).rejects.toThrow('away');
    const { key } = JSON.parse(kept());
    const before = asked.length;
    withOrder(status);
    expect(await issue()).toContain(key.trim());
    expect(asked.filter((path) => path === '/new-order')).toHaveLength(1);
    if (status === 'valid') expect(asked.slice(before)).not.toContain('/finalize');
    if (status !== 'pending') expect(asked.slice(before)).not.toContain('/challenge');
  });

  test.each<[string, (request: { path: string }) => Lied | undefined]>([
    ['is invalid by now', ({ path }) => (path === '/order' ? { body: order('invalid') } : undefined)],
    [
      'the authority does not know',
      ({ path }) => (path === '/order' ? { status: 404, body: { detail: 'no' } } : undefined),
    ],
  ])('that %s is followed by another', async (_, later) => {
    lie = refusing('/finalize');
    await expect(issue()).rejects.toThrow('away');
    lie = later;
    await issue();
    expect(asked.filter((path) => path === '/new-order')).toHaveLength(2);
  });

  test('is not asked of another authority, and not begun where it cannot be kept', async () => {
    writeFileSync(
      join(folder, orderFile(NAME)),
      JSON.stringify({ directory: 'https://other.example.com/dir', at: Date.now(), key: 'x', url: `${origin}/order` }),
    );
    await issue();
    expect(asked).not.toContain('/order');
    rmSync(join(folder, orderFile(NAME)));
    asked = [];
    // Stands for a full disk, and for a lease that is lost.
    mkdirSync(join(folder, orderFile(NAME)));
    await expect(issue()).rejects.toThrow();
    expect(asked).not.toContain('/new-order');
    rmSync(join(folder, orderFile(NAME)), { recursive: true });
  });
});
