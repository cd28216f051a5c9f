/** Which certificate the edge shows to callers that name no host. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Certificates } from '../../host/edge/tls/certificates.ts';
import { selfSigned } from '../e2e/support/authority.ts';

const root = mkdtempSync(path.join(tmpdir(), 'edge-certificates-'));
const folder = path.join(root, 'certificates');
const pair = { cert: path.join(root, 'file.crt'), key: path.join(root, 'file.key') };
const own = { cert: path.join(root, 'own.crt'), key: path.join(root, 'own.key') };
const files = [{ names: ['*.files.test'], ...pair }];

beforeAll(() => {
  mkdirSync(folder);
  selfSigned(['*.files.test'], pair);
  selfSigned(['host.test'], own);
  writeFileSync(path.join(folder, 'tenant.test.pem'), readFileSync(own.key, 'utf8') + readFileSync(own.cert, 'utf8'));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

it("is the operator's first, where the host's own name has none", async () => {
  const shown = await new Certificates({ ownName: 'host.test', files, folder }).own();
  expect(shown?.cert).toEqual(readFileSync(pair.cert));
  expect(await new Certificates({ files, folder: undefined }).own()).toMatchObject({ key: readFileSync(pair.key) });
});

it("is that of the host's own name as soon as it is there", async () => {
  const certificates = new Certificates({ ownName: 'host.test', files, folder });
  const text = readFileSync(own.key, 'utf8') + readFileSync(own.cert, 'utf8');
  writeFileSync(path.join(folder, 'host.test.pem'), text);
  certificates.changed('host.test');
  expect((await certificates.own())?.cert.toString()).toBe(text);
});

it('is never that of a tenant', async () => {
  expect(await new Certificates({ ownName: 'other.test', files: [], folder }).own()).toBeUndefined();
});
