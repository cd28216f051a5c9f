/** Half a cluster is refused before anything is opened, with what to do. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Config } from '../../host/shared/config.ts';
import { refuseHalfACluster } from '../../host/supervisor/cluster.ts';
import { loadConfig, settingsInForce } from '../../host/supervisor/configuration.ts';

const DATABASE = 'postgres://turnpike:hush@127.0.0.1:9/turnpike';
const KEY = 'k'.repeat(32);
const WHOLE = {
  TURNPIKE_CLUSTER_DATABASE: DATABASE,
  TURNPIKE_CLUSTER_KEY: KEY,
  TURNPIKE_CLUSTER_STORAGE_ENDPOINT: 'http://127.0.0.1:9',
  TURNPIKE_CLUSTER_STORAGE_BUCKET: 'turnpike',
  TURNPIKE_CLUSTER_STORAGE_ACCESS_KEY: 'turnpike',
  TURNPIKE_CLUSTER_STORAGE_SECRET_KEY: 'whispered',
  TURNPIKE_PUBLIC_URL: 'https://example.com',
  TURNPIKE_PAYMENTS_NETWORK: 'none',
  TURNPIKE_BUILTIN_TENANTS_ENABLED: '',
};

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-half-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function refuse(env: Record<string, string>, origins = new Map<string, string>()): Config {
  const config = loadConfig({ folder, env, flags: [], origins });
  refuseHalfACluster(config, { data: folder, registry: path.join(folder, 'registry.db') });
  return config;
}

it('a whole one is taken, and shows neither the address nor the key', () => {
  const origins = new Map<string, string>();
  const config = refuse(WHOLE, origins);
  const shown = JSON.stringify(settingsInForce(config, origins));
  expect(shown).not.toContain('hush');
  expect(shown).not.toContain(KEY);
  expect(shown).not.toContain('whispered');
});

it.each([
  ['without a key', { TURNPIKE_CLUSTER_KEY: '' }, /openssl rand/],
  ['with a short key', { TURNPIKE_CLUSTER_KEY: 'short' }, /32 characters/],
  ['without a database', { TURNPIKE_CLUSTER_DATABASE: '' }, /set cluster.database/],
  ['without a bucket', { TURNPIKE_CLUSTER_STORAGE_BUCKET: '' }, /cluster.storage: a cluster needs a bucket/],
  ['over another database', { TURNPIKE_CLUSTER_DATABASE: 'mysql://x/y' }, /postgres:\/\//],
  ['on the local network', { TURNPIKE_PAYMENTS_NETWORK: 'local' }, /payments.network/],
  ['without a public URL', { TURNPIKE_PUBLIC_URL: '' }, /publicUrl/],
  ['with a libSQL server', { TURNPIKE_STORAGE_SQL: 'libsql://sql.example.com' }, /storage.sql/],
  ['with backups of one box', { TURNPIKE_BACKUP_SCHEDULE: '0 3 * * *' }, /pg_dump/],
])('half a cluster %s is refused', (_, env, why) => {
  expect(() => refuse({ ...WHOLE, ...env })).toThrow(why);
});

it('a data folder that holds a host of its own is refused', () => {
  writeFileSync(path.join(folder, 'registry.db'), '');
  expect(() => refuse(WHOLE)).toThrow(/a host of its own/);
});
