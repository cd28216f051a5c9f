import { describe, expect, test } from 'vitest';
import { databaseVariables, localDatabases, onThisMachine } from '../../host/cli/project/databases.ts';
import type { Project } from '../../host/cli/project/manifest.ts';
import { envTypes } from '../../host/cli/types.ts';
import { readWrangler } from '../../host/manifest/wrangler.ts';

function projectOf(hyperdrive: object[]): Project {
  const wrangler = { ...readWrangler(JSON.stringify({ hyperdrive }), 'wrangler.json', {}), path: '/p/wrangler.json' };
  return { manifest: wrangler.manifest as Project['manifest'], folder: '/p', wrangler };
}

const project = projectOf([
  { binding: 'DB', id: '57b7076f58be42419276f058a8968187', localConnectionString: 'postgres://u:p@localhost/d' },
  { binding: 'OTHER', id: '1' },
]);

describe('the connection strings of a project for wrangler', () => {
  test('come from its variables, the newer name first', () => {
    const older = { WRANGLER_HYPERDRIVE_LOCAL_CONNECTION_STRING_DB: 'a' };
    const newer = { ...older, CLOUDFLARE_HYPERDRIVE_LOCAL_CONNECTION_STRING_DB: 'b' };
    expect(databaseVariables(project, older)).toEqual([
      ['WRANGLER_HYPERDRIVE_LOCAL_CONNECTION_STRING_DB', 'DB_CONNECTION_STRING'],
    ]);
    expect(databaseVariables(project, newer)).toEqual([
      ['CLOUDFLARE_HYPERDRIVE_LOCAL_CONNECTION_STRING_DB', 'DB_CONNECTION_STRING'],
    ]);
    expect(databaseVariables(project, { CLOUDFLARE_HYPERDRIVE_LOCAL_CONNECTION_STRING_ELSE: 'c' })).toEqual([]);
  });

  test('for development come from the file', () => {
    expect(localDatabases(project)).toEqual({ DB_CONNECTION_STRING: 'postgres://u:p@localhost/d' });
  });

  test('on this machine need no TLS, and have their addresses opened', () => {
    const secrets = {
      DB_CONNECTION_STRING: 'postgres://u:p@localhost/d?a=b',
      OTHER_CONNECTION_STRING: 'mysql://u:p@db.example.com:3307/d',
      ELSE: 'postgres://u:p@localhost:1/d',
    };
    expect(onThisMachine(project, secrets)).toEqual({
      secrets: { ...secrets, DB_CONNECTION_STRING: 'postgres://u:p@localhost/d?a=b&sslmode=disable' },
      addresses: ['localhost:5432', 'db.example.com:3307'],
    });
    const said = { DB_CONNECTION_STRING: 'postgres://u:p@127.0.0.1/d?sslmode=require' };
    expect(onThisMachine(project, said)).toEqual({ secrets: said, addresses: ['127.0.0.1:5432'] });
    expect(onThisMachine(project, { DB_CONNECTION_STRING: 'nothing' }).addresses).toEqual([]);
  });
});

test('env has a Hyperdrive, and not the secret behind it', () => {
  const { manifest, folder } = project;
  const types = envTypes(
    { folder, manifest: { ...manifest, secrets: { DB_CONNECTION_STRING: '@url', KEY: '@key' } } },
    'Env',
  );
  expect(types).toContain('DB: Hyperdrive;');
  expect(types).toContain('KEY: string;');
  expect(types).not.toContain('CONNECTION_STRING');
});
