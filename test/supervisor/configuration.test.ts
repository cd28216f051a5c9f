import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
    writeFileSync(path.join(folder, 'turnpike.json'), JSON.stringify({ port: 1, adminPort: 1, data: 'file' }));
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

  it('gives every setting one flag and one variable', () => {
    const all = settings();
    expect(new Set(all.map((setting) => setting.flag)).size).toBe(all.length);
    expect(new Set(all.map((setting) => setting.env)).size).toBe(all.length);
    expect(all.every((setting) => setting.description.length > 5)).toBe(true);
  });

  it.each([
    ['a flag', () => load(['--prot', '1']), /Unknown setting --prot .*Did you mean --port\?/],
    ['a variable', () => load([], { TURNPIKE_ADMINPORT: '1' }), /Did you mean TURNPIKE_ADMIN_PORT\?/],
    ['a stray word', () => load(['8402']), /Not understood: 8402/],
    ['a number that is none', () => load(['--port', 'x']), /--port takes a whole number/],
    ['a number out of range', () => load(['--port', '70000']), /port: /],
    ['a missing value', () => load(['--port']), /--port needs a value/],
    ['a bad enum', () => load(['--payments-network', 'moon']), /payments\.network/],
  ])('refuses %s, naming what to do', (_what, run, message) => {
    expect(run).toThrow(message);
  });

  it('refuses an unknown key in the file with the nearest known one', () => {
    writeFileSync(path.join(folder, 'turnpike.json'), JSON.stringify({ storage: { s3: { bukket: 'x' } } }));
    expect(() => load()).toThrow(/storage\.s3\.bukket in .*Did you mean storage\.s3\.bucket\?/);
  });

  it('lets records have any keys', () => {
    writeFileSync(path.join(folder, 'turnpike.json'), JSON.stringify({ runtime: { egressAllow: { a: ['b:1'] } } }));
    expect(load().runtime.egressAllow).toEqual({ a: ['b:1'] });
  });
});
