import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { loadNetworkKeys } from '../../host/payments/network/keys.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'turnpike-keys-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

test('keys are made once, random, and only for their owner to read', async () => {
  const first = await loadNetworkKeys(folder);
  const again = await loadNetworkKeys(folder);
  expect(again.wallets).toEqual(first.wallets);
  expect(again.accounts.facilitator.address).toBe(first.accounts.facilitator.address);
  expect(statSync(join(folder, 'network-keys.json')).mode & 0o777).toBe(0o600);
  const addresses = [...first.wallets, ...Object.values(first.accounts)].map(({ address }) => address);
  expect(first.wallets.length).toBeGreaterThanOrEqual(5);
  expect(new Set(addresses).size).toBe(addresses.length);

  const other = mkdtempSync(join(tmpdir(), 'turnpike-keys-'));
  expect((await loadNetworkKeys(other)).wallets[0]?.address).not.toBe(first.wallets[0]?.address);
  rmSync(other, { recursive: true });
});

test.each(['', '{', '{"wallets":[]}'])('a damaged key file (%s) is refused, and left as it is', async (text) => {
  const path = join(folder, 'network-keys.json');
  writeFileSync(path, text);
  await expect(loadNetworkKeys(folder)).rejects.toMatchObject({ code: 'invalid_config' });
  expect(readFileSync(path, 'utf8')).toBe(text);
});
