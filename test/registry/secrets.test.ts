import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openRegistry } from '../../host/registry/index.ts';
import { SecretBox } from '../../host/registry/secret-box.ts';
import type { Config } from '../../host/shared/config.ts';
import { openFolders } from '../../host/supervisor/folders.ts';
import { openStores } from '../../host/supervisor/stores.ts';

const ONE_BOX = { cluster: { database: '' } } as Config;
let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-box-'));
  file = path.join(folder, 'secrets.key');
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('secret box', () => {
  it('keeps its key in a file that only its user reads', async () => {
    await SecretBox.open(file);
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it('opens what it sealed, also after a restart', async () => {
    const sealed = (await SecretBox.open(file)).seal('päss', 'here');
    expect(sealed.sealed.toString('latin1')).not.toContain('ss');
    expect((await SecretBox.open(file)).unseal(sealed, 'here')).toBe('päss');
  });

  it('refuses another place and altered bytes', async () => {
    const box = await SecretBox.open(file);
    const sealed = box.seal('value', 'here');
    expect(() => box.unseal(sealed, 'there')).toThrow();
    const altered = Buffer.from(sealed.sealed);
    altered[altered.length - 1] = (altered.at(-1) ?? 0) ^ 1;
    expect(() => box.unseal({ ...sealed, sealed: altered }, 'here')).toThrow();
  });

  it('never seals the same way twice', async () => {
    const box = await SecretBox.open(file);
    expect(box.seal('v', 'c').sealed.equals(box.seal('v', 'c').sealed)).toBe(false);
  });

  it('rotates: old values open until the old keys are dropped', async () => {
    const box = await SecretBox.open(file);
    const old = box.seal('v', 'c');
    await box.addKey();
    expect(box.seal('v', 'c').keyId).not.toBe(old.keyId);
    expect(box.unseal(old, 'c')).toBe('v');
    await box.keepKeys([box.currentKeyId]);
    expect(() => box.unseal(old, 'c')).toThrow(/not in secrets\.key/);
    expect(Object.keys(JSON.parse(readFileSync(file, 'utf8')).keys)).toHaveLength(1);
  });

  it('makes no new key file where the registry holds what the missing one sealed', async () => {
    const folders = openFolders(folder);
    const stores = await openStores(ONE_BOX, folders, '0');
    await stores.registry.client.execute('PRAGMA foreign_keys = OFF');
    await stores.registry.client.execute(
      "INSERT INTO secrets (tenant, name, key_id, sealed) VALUES ('t', 'A', 'k', x'00')",
    );
    await stores.close();
    rmSync(file);
    await expect(openStores(ONE_BOX, folders, '0')).rejects.toMatchObject({
      code: 'invalid_config',
      message: expect.stringContaining(`${file} is missing`),
    });
    expect(existsSync(file)).toBe(false);
    const registry = await openRegistry(folders.registry);
    await registry.client.execute('DELETE FROM secrets');
    registry.close();
    await (await openStores(ONE_BOX, folders, '0')).close();
    expect(existsSync(file)).toBe(true);
  });

  it('does not overwrite a damaged key file', async () => {
    const { writeFileSync } = await import('node:fs');
    writeFileSync(file, 'not json');
    await expect(SecretBox.open(file)).rejects.toThrow(/not a key file/);
    expect(readFileSync(file, 'utf8')).toBe('not json');
  });
});
