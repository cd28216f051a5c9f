/** The operator's certificate files are looked at before the host starts. */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { checkCertificateFiles } from '../../host/certificates/files.ts';
import { selfSigned } from '../e2e/support/authority.ts';

const DAY_MS = 86_400_000;

const folder = mkdtempSync(path.join(tmpdir(), 'certificate-files-'));
const cert = path.join(folder, 'tls.crt');
const key = path.join(folder, 'tls.key');
const other = path.join(folder, 'other.key');
let lines: Record<string, unknown>[] = [];
const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });

beforeAll(() => {
  selfSigned(['a.test', '*.a.test'], { cert, key });
  selfSigned(['b.test'], { cert: path.join(folder, 'other.crt'), key: other });
});
beforeEach(() => {
  lines = [];
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function check(files: { names?: string[]; cert?: string; key?: string }, now?: number): Promise<void> {
  const certificates = [{ names: ['a.test', '*.a.test'], cert, key, ...files }];
  const acme = { directory: '', email: '', caFile: '', challenge: 'http-01' as const, dnsHook: '' };
  const tls = { mode: 'files' as const, port: 443, redirect: true, proxyProtocol: false, certificates, acme };
  return checkCertificateFiles(tls, log, now);
}

function file(name: string, text: string): string {
  const target = path.join(folder, name);
  writeFileSync(target, text, { mode: 0o600 });
  return target;
}

it('says nothing of files that are in order', async () => {
  await check({});
  // Self-signed for two days.
  expect(lines.map(({ msg }) => msg)).toEqual([expect.stringContaining('expires soon')]);
});

it('names a file that is missing', async () => {
  await expect(check({ cert: '/nowhere/tls.crt' })).rejects.toThrow(
    /tls\.certificates\[0\]\.cert: there is no file \/nowhere\/tls\.crt/,
  );
  await expect(check({ key: '/nowhere/tls.key' })).rejects.toThrow(/\.key: there is no file \/nowhere\/tls\.key/);
  await expect(check({ cert: folder })).rejects.toThrow(/cannot be read/);
});

it('names a key that belongs to another certificate', async () => {
  await expect(check({ key: other })).rejects.toThrow(`the key in ${other} does not belong`);
});

it('tells a chain in the wrong order', async () => {
  const chain = file('chain.crt', readFileSync(path.join(folder, 'other.crt'), 'utf8') + readFileSync(cert, 'utf8'));
  await expect(check({ cert: chain })).rejects.toThrow(/the certificate itself comes first/);
});

it('names files that hold something else, without a word of what they hold', async () => {
  const noise = file('noise.pem', 'secret noise');
  await expect(check({ cert: noise })).rejects.toThrow(`${noise} holds no certificate in PEM`);
  const refusal = await check({ key: noise }).catch((error: Error) => error);
  expect(String(refusal)).toContain(`${noise} holds no private key in PEM`);
  expect(String(refusal)).not.toContain('secret');
  await expect(check({ key: cert })).rejects.toThrow(/no private key/);
});

it('tells a key that is locked with a passphrase, and how to unlock it', async () => {
  const locked = path.join(folder, 'locked.key');
  execFileSync('openssl', ['pkey', '-in', key, '-aes256', '-passout', 'pass:x', '-out', locked]);
  await expect(check({ key: locked })).rejects.toThrow(`openssl pkey -in ${locked}`);
});

it('starts with a certificate that has expired or is not valid yet, and says so', async () => {
  await check({}, Date.now() + 3 * DAY_MS);
  await check({}, Date.now() - DAY_MS);
  expect(lines.filter(({ level }) => level === 50)).toEqual([
    expect.objectContaining({ file: cert, msg: expect.stringContaining('has expired') }),
    expect.objectContaining({ file: cert, msg: expect.stringContaining('not valid yet') }),
  ]);
});

it('tells names that the certificate does not cover', async () => {
  await check({ names: ['a.test', 'x.a.test', '*.a.test', 'b.test', '*.b.test'] });
  expect(lines).toContainEqual(expect.objectContaining({ level: 50, names: ['b.test', '*.b.test'] }));
});

it('tells a key that everybody can read', async () => {
  const open = file('open.key', readFileSync(key, 'utf8'));
  chmodSync(open, 0o644);
  await check({ key: open });
  expect(lines).toContainEqual(expect.objectContaining({ file: open, msg: expect.stringContaining('chmod o=') }));
});
