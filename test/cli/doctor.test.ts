/** Which host the doctor looks at. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { checkConfiguration, urlOf } from '../../host/cli/doctor/host.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'turnpike-doctor-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

async function url(settings: object): Promise<string> {
  writeFileSync(path.join(folder, 'turnpike.json'), JSON.stringify(settings));
  const { config } = await checkConfiguration(folder, {});
  return urlOf(config, [path.resolve(folder, config.data)]).href;
}

it.each([
  [{ port: 9000 }, 'http://localhost:9000/'],
  [{ port: 9000, host: '0.0.0.0', payments: { allowTestMoneyInPublic: true } }, 'http://localhost:9000/'],
  [{ host: '192.0.2.1' }, 'http://192.0.2.1:8402/'],
  [{ host: '2001:db8::1' }, 'http://[2001:db8::1]:8402/'],
])('before the first start it is the one of the configuration: %j', async (settings, expected) => {
  expect(await url(settings)).toBe(expected);
});

it('later it is the one that was started, in the data folder of the configuration', async () => {
  mkdirSync(path.join(folder, 'elsewhere'));
  writeFileSync(path.join(folder, 'elsewhere/host.json'), '{"port": 9001}');
  expect(await url({ port: 0, data: './elsewhere' })).toBe('http://localhost:9001/');
});
