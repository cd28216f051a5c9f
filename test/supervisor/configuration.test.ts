import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig, settings } from '../../host/supervisor/configuration.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-config-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const load = (flags: string[] = [], env: Record<string, string> = {}) => loadConfig({ folder, env, flags });

describe('configuration', () => {
  it('has defaults', () => {
    expect(load()).toMatchObject({ port: 8402, adminPort: 8403, data: './data', payments: { network: 'local' } });
  });

  it('prefers flags to environment to file to defaults', () => {
    writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ port: 1, adminPort: 1, data: 'file' }));
    expect(load(['--port', '3'], { TURNPIKE_PORT: '2', TURNPIKE_ADMIN_PORT: '2' })).toMatchObject({
      port: 3,
      adminPort: 2,
      data: 'file',
    });
  });

  it('reads nested settings from the environment and flags', () => {
    const config = load(['--storage-s3-bucket=b', '--clock-movable'], { TURNPIKE_STORAGE_S3_ENDPOINT: 'http://s3' });
    expect(config.storage.s3).toMatchObject({ bucket: 'b', endpoint: 'http://s3' });
    expect(config.clock.movable).toBe(true);
  });

  describe('beside a turnpike.json, where earlier versions had the settings', () => {
    const former = () => path.join(folder, 'turnpike.json');
    const notices: string[] = [];
    const loaded = () => {
      notices.length = 0;
      return loadConfig({ folder, env: {}, flags: [], notice: (text) => notices.push(text) });
    };

    it('takes them from there, and says what to rename', () => {
      writeFileSync(former(), JSON.stringify({ host: '0.0.0.0', port: 1 }));
      expect(loaded()).toMatchObject({ host: '0.0.0.0', port: 1 });
      expect(notices).toEqual([
        expect.stringContaining(`${former()} holds settings of the host: rename it to turnpike.host.json`),
      ]);
    });

    it('prefers the new name, and says that the old one is not read', () => {
      writeFileSync(former(), JSON.stringify({ port: 1 }));
      writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ port: 2 }));
      expect(loaded().port).toBe(2);
      expect(notices).toEqual([expect.stringContaining(`${former()} is not read`)]);
    });

    it.each([
      { slug: 'hello', crons: ['* * * * *'] },
      { $schema: './turnpike.schema.json', slug: 'hello', bindings: 'none' },
      { slug: 'hello', host: 'https://host.example' },
    ])('leaves the file of a project to the project: %j', (manifest) => {
      writeFileSync(former(), JSON.stringify(manifest));
      expect(loaded()).toEqual(loadConfig({ folder: '/nowhere', env: {}, flags: [] }));
      writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ port: 2 }));
      expect(loaded().port).toBe(2);
      expect(notices).toEqual([]);
    });

    it('refuses what is neither', () => {
      writeFileSync(former(), JSON.stringify({ slug: 'hello', port: 1 }));
      expect(loaded).toThrow(/Unknown setting slug/);
      writeFileSync(former(), JSON.stringify({ prot: 1 }));
      expect(loaded).toThrow(/Unknown setting prot .*Did you mean port\?/);
    });
  });

  it('still reads a setting by its earlier name, and says its present one', () => {
    const notices: string[] = [];
    writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ runtime: { swollenBytes: 7 } }));
    const { runtime } = loadConfig({
      folder,
      env: { TURNPIKE_RUNTIME_SWOLLEN_BYTES: '9' },
      flags: ['--runtime-swollen-idle-ms=8'],
      notice: (text) => notices.push(text),
    });
    expect(runtime).toMatchObject({ bloatedBytes: 9, bloatedIdleMs: 8 });
    expect(notices).toEqual([
      expect.stringContaining('The setting runtime.swollenBytes is now called runtime.bloatedBytes'),
      expect.stringContaining('is now called TURNPIKE_RUNTIME_BLOATED_BYTES'),
      expect.stringContaining('is now called --runtime-bloated-idle-ms'),
    ]);
  });

  it('gives every setting one flag and one variable', () => {
    const all = settings();
    expect(new Set(all.map((setting) => setting.flag)).size).toBe(all.length);
    expect(new Set(all.map((setting) => setting.env)).size).toBe(all.length);
    expect(all.every((setting) => setting.description.length > 5)).toBe(true);
  });

  it.each([
    ['a flag', () => load(['--prot', '1']), /Unknown setting --prot .*Did you mean --port\?/],
    ['a variable', () => load([], { TURNPIKE_ADMINPORT: '1' }), /Did you mean TURNPIKE_ADMIN_PORT\?/],
    ['a stray word', () => load(['8402']), /Unknown argument: 8402/],
    ['a number that is none', () => load(['--port', 'x']), /--port takes a whole number/],
    ['a number out of range', () => load(['--port', '70000']), /port: /],
    ['a price of nothing', () => load(['--prices-deploy', '0.00']), /prices\.deploy: expected more than 0/],
    ['a missing value', () => load(['--port']), /--port needs a value/],
    ['no data folder', () => load(['--data', '']), /data: /],
    [
      'a public URL that is no web address',
      () => load(['--public-url', 'ftp://a.example']),
      /publicUrl: expected an orig/,
    ],
    ['a public URL with a path', () => load(['--public-url', 'https://a.example/b']), /publicUrl: expected an origin/],
    ['a base domain that is a URL', () => load(['--base-domain', 'https://a.example']), /baseDomain: expected a name/],
    [
      'a range that is none',
      () => load(['--trusted-proxies', '10.0.0.0/99']),
      /trustedProxies\.0: expected an address/,
    ],
    ['a DNS server by name', () => load(['--domains-resolver', 'dns.example']), /domains\.resolver: expected the addr/],
    [
      'a token that is not hashed',
      () => load(['--domains-registrar-tokens', 'abc']),
      /registrarTokens\.0: expected 64/,
    ],
    [
      'a directory that is no URL',
      () => load(['--tls-acme-directory', 'letsencrypt']),
      /tls\.acme\.directory: expected/,
    ],
    [
      'an unknown kind of SQL server',
      () => load(['--storage-sql', 'postgres://a']),
      /storage\.sql: expected local, or/,
    ],
    ['S3 without keys', () => load(['--storage-objects', 's3']), /storage\.s3: objects "s3" needs endpoint, bucket/],
    ['a model server without models', () => load(['--ai-url', 'http://a.example']), /ai\.models: url needs models/],
    [
      'a password in the address of a model server',
      () => load(['--ai-url', 'http://u:p@a.example', '--ai-models', '{"a":"b"}']),
      /ai\.url: expected a URL without user and password/,
    ],
    ['a wallet that is none', () => load(['--payments-recipient', '0x12']), /payments\.recipient: expected 0x and 40/],
    [
      'a range opened to a slug',
      () => load(['--runtime-egress-allow', '{"a":["10.0.0.0/8"]}']),
      /egressAllow\.a\.0: expe/,
    ],
    ['a name to listen on', () => load(['--host', 'localhost']), /host: expected an IP address/],
    ['a time that no timer takes', () => load(['--runtime-idle-ms', '3000000000']), /runtime\.idleMs: Too big/],
    ['a bad enum', () => load(['--payments-network', 'moon']), /payments\.network/],
  ])('refuses %s, naming what to do', (_what, run, message) => {
    expect(run).toThrow(message);
  });

  it.each([
    ['[]', /must hold an object/],
    ['null', /must hold an object/],
    ['{', /is not JSON/],
  ])('refuses %s as the file', (text, message) => {
    writeFileSync(path.join(folder, 'turnpike.host.json'), text);
    expect(() => load()).toThrow(message);
  });

  it('refuses a part of the file that is no object, also where the environment says more', () => {
    writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ tls: false }));
    expect(() => load()).toThrow(/tls in .* must be an object/);
    expect(() => load([], { TURNPIKE_TLS_PORT: '1' })).toThrow(/tls in .* must be an object/);
  });

  it('reads lists with spaces between', () => {
    expect(load(['--slugs-reserved', 'www, api']).slugs.reserved).toEqual(['www', 'api']);
  });

  it('says that the file cannot be read', () => {
    mkdirSync(path.join(folder, 'turnpike.host.json'));
    expect(() => load()).toThrow(/turnpike\.host\.json cannot be read: EISDIR/);
  });

  it('takes what is right', () => {
    const flags = {
      'public-url': 'https://API.example.com:443/',
      'base-domain': 'api.example.com',
      'trusted-proxies': '10.0.0.0/8,::1/128,192.0.2.7',
      'domains-resolver': '[::1]:53',
      'storage-sql': 'libsql://db.example.com',
      'payments-recipient': '0x00000000000000000000000000000000000000aa',
      'runtime-egress-allow': '{"a":["db.local:5432","[::1]:80","unix:/run/a.sock"]}',
    };
    expect(() => load(Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]))).not.toThrow();
  });

  it('refuses an unknown key in the file with the nearest known one', () => {
    writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ storage: { s3: { bukket: 'x' } } }));
    expect(() => load()).toThrow(/storage\.s3\.bukket in .*Did you mean storage\.s3\.bucket\?/);
  });

  it('lets records have any keys', () => {
    writeFileSync(
      path.join(folder, 'turnpike.host.json'),
      JSON.stringify({ runtime: { egressAllow: { a: ['b:1'] } } }),
    );
    expect(load().runtime.egressAllow).toEqual({ a: ['b:1'] });
  });
});
