/** Static files through the whole host: sent once, apart from each other, with versions, quota, backup and deletion. */
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withRestored } from './support/backup.ts';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

const FILES = 500;
const DAY_MS = 86_400_000;

let folder: string;
let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-assets-'));
  host = await startHost({
    flags: {
      'log-level': 'error',
      'storage-asset-bytes': String(4 * 1_048_576),
      'slugs-grace-days': '1',
    },
  });
  owner = mppFetch(host.network, 0);
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
  rmSync(folder, { recursive: true, force: true });
});

const command = (...args: string[]) =>
  turnpike(['--host-url', host.url, '--data', host.data, ...args], { cwd: path.join(folder, 'site') });
const text = async (target: string, at = host) => (await fetch(`${at.url}/${target}`)).text();
const sha256 = (content: string) => createHash('sha256').update(content).digest('hex');

function write(name: string, content: string): void {
  const file = path.join(folder, 'site', name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, content);
}

describe('a site of the command', () => {
  it('is sent whole once, then what changed alone; a version that is gone back to has its files', async () => {
    write('turnpike.json', JSON.stringify({ slug: 'site', assets: { directory: 'public' } }));
    for (let i = 0; i < FILES; i++) write(`public/pages/${i}.txt`, `page ${i}`);
    write('public/index.html', 'first');
    expect((await command('deploy', '--yes')).stderr).toBe('');
    expect(await text('site/')).toBe('first');
    expect(await text(`site/pages/${FILES - 1}.txt`)).toBe(`page ${FILES - 1}`);
    const [tenant = ''] = readdirSync(path.join(host.data, 'tenants')).filter((name) =>
      readdirSync(path.join(host.data, 'tenants', name)).includes('assets'),
    );
    const kept = () => readdirSync(path.join(host.data, 'tenants', tenant, 'assets/files'));
    expect(kept()).toHaveLength(FILES + 1);

    write('public/index.html', 'second');
    write('public/pages/7.txt', 'changed');
    expect((await command('update', '--slug', 'site')).stderr).toBe('');
    expect(await text('site/')).toBe('second');
    expect(await text('site/pages/7.txt')).toBe('changed');
    expect(await text('site/pages/8.txt')).toBe('page 8');
    expect(kept()).toHaveLength(FILES + 3);

    const change = { code: 'export default { fetch: () => new Response("code of version two") }', assets: null };
    expect((await owner(`${host.url}/_admin/code/site`, jsonPut(change))).status).toBe(200);
    expect(await text('site/pages/7.txt')).toBe('code of version two');
    expect((await command('rollback', 'site', '1')).stderr).toBe('');
  });

  it.each<[string, () => void, RegExp]>([
    [
      'a folder that is not there',
      () => rmSync(path.join(folder, 'site/public'), { recursive: true }),
      /public, which is no folder/,
    ],
    [
      'a link out of the folder',
      () => {
        write('public/index.html', 'x');
        symlinkSync('/etc/passwd', path.join(folder, 'site/public/passwd'));
      },
      /passwd is a link to what is no static file/,
    ],
    [
      'code among the files',
      () => {
        rmSync(path.join(folder, 'site/public/passwd'));
        write('public/_worker.js', 'export default {}');
      },
      /_worker\.js, which is code and would be public/,
    ],
  ])('%s is refused before anything is sent', async (_what, make, words) => {
    make();
    const { code, stderr } = await command('update', '--slug', 'site');
    expect(code).toBe(2);
    expect(stderr).toMatch(words);
  });
});

describe('files of the API', () => {
  let bearer: Record<string, string>;
  const put = (content: string, name = sha256(content), slug = 'files') =>
    fetch(`${host.url}/_admin/${slug}/assets/${name}`, { method: 'PUT', body: content, headers: bearer });
  const update = (assets: object | null) =>
    fetch(`${host.url}/_admin/code/files`, {
      ...jsonPut({ assets }),
      headers: { ...bearer, 'content-type': 'application/json' },
    });
  beforeAll(async () => {
    const code = 'export default { fetch: (request, env) => env.FILES?.fetch(request) ?? new Response("none") }';
    await deploy(owner, host.url, { slug: 'files', code });
    await deploy(mppFetch(host.network, 1), host.url, { slug: 'others', code });
    const session = await owner(`${host.url}/_admin/session/files`, { method: 'POST' });
    bearer = { authorization: `Bearer ${((await session.json()) as { token: string }).token}` };
  });

  it('are kept under what they are alone, and by their owner alone', async () => {
    expect((await put('right')).status).toBe(201);
    expect((await put('right')).status).toBe(201);
    expect((await put('wrong', sha256('another'))).status).toBe(400);
    expect((await put('wrong', '../../../x')).status).toBeGreaterThanOrEqual(400);
    expect((await put('theirs', sha256('theirs'), 'others')).status).toBe(401);
    const hashes = [sha256('right'), sha256('another')];
    const asked = await fetch(`${host.url}/_admin/files/assets`, jsonPost({ hashes }, bearer));
    expect(await asked.json()).toEqual({ missing: [sha256('another')] });
    const readable = await fetch(`${host.url}/_admin/files/assets/${sha256('right')}`);
    expect(readable.status).toBeGreaterThanOrEqual(400);
  });

  it.each<[string, Record<string, string>, number]>([
    ['a file that was not sent', { '/a': sha256('another') }, 409],
    ['a way up', { '/../a': sha256('right') }, 400],
    ['a way up inside', { '/a/../../b': sha256('right') }, 400],
    ['an empty name', { '/a//b': sha256('right') }, 400],
    ['no path', { 'a.html': sha256('right') }, 400],
    ['a control character', { '/a\u0000b': sha256('right') }, 400],
    ['a name that is too long', { [`/${'x'.repeat(256)}`]: sha256('right') }, 400],
    ['a file that is a folder, too', { '/a': sha256('right'), '/a/b': sha256('right') }, 400],
    ['what is no digest', { '/a': 'x' }, 400],
  ])('%s is refused', async (_what, files, status) => {
    expect((await update({ files })).status).toBe(status);
    expect(await text('files/a')).toBe('none');
  });

  it('are served, with a binding to them, until they are taken away', async () => {
    expect((await update({ files: { '/a.txt': sha256('right') }, binding: 'FILES' })).status).toBe(200);
    expect(await text('files/a.txt')).toBe('right');
    expect((await fetch(`${host.url}/files/b.txt`)).status).toBe(404);
    const first = await fetch(`${host.url}/files/a.txt`);
    const etag = first.headers.get('etag') ?? '';
    expect(etag).not.toBe('');
    const again = await fetch(`${host.url}/files/a.txt`, { headers: { 'if-none-match': etag } });
    expect(again.status).toBe(304);
    await host.kill();
    host = await host.restart();
    owner = mppFetch(host.network, 0);
    expect(await text('files/a.txt')).toBe('right');
    const after = await fetch(`${host.url}/files/a.txt`, { headers: { 'if-none-match': etag } });
    expect(after.status).toBe(304);
  });

  it('end at the quota, and other tenants have theirs', async () => {
    const big = (letter: string) => letter.repeat(1_500_000);
    expect((await put(big('a'))).status).toBe(201);
    expect((await put(big('b'))).status).toBe(201);
    const refused = await put(big('c'));
    expect(refused.status).toBe(507);
    expect(((await refused.json()) as { code: string }).code).toBe('quota_exceeded');
    const usage = await (await owner(`${host.url}/_admin/files/usage`)).json();
    expect(JSON.stringify(usage)).toMatch(/"assetBytes":30\d{5}\b/);
  });

  it('are in a backup, and go with the deployment', async () => {
    await withRestored(host, async (other) => expect(await text('files/a.txt', other)).toBe('right'));
    const before = readdirSync(path.join(host.data, 'tenants'));
    expect((await owner(`${host.url}/_admin/files`, { method: 'DELETE' })).status).toBe(200);
    await host.advance(2 * DAY_MS);
    await until(() => readdirSync(path.join(host.data, 'tenants')).length === before.length - 1);
  });
});
