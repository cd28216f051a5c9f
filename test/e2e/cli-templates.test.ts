/** Every template of `turnpike init`, made, looked at, deployed and called; then listed. */
import { existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TEMPLATES } from '../../host/cli/init.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';

const CHECKOUT = fileURLToPath(new URL('../../', import.meta.url));

let folder: string;
let host: TestHost;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-init-'));
  // As after `npm install`.
  symlinkSync(path.join(CHECKOUT, 'node_modules'), path.join(folder, 'node_modules'));
  host = await startHost({ flags: { 'log-level': 'error' } });
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
  rmSync(folder, { recursive: true, force: true });
});

async function ok(cwd: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await turnpike(['--host-url', host.url, '--data', host.data, ...args], {
    cwd: path.join(folder, cwd),
    env: { HOME: folder },
  });
  expect(stderr).toBe('');
  expect(code).toBe(0);
  return stdout.trimEnd();
}
const text = async (target: string, init?: RequestInit) => (await fetch(`${host.url}/${target}`, init)).text();

/** What a deployed template answers. */
const ANSWERS: Record<string, [slug: string, look: () => Promise<void>]> = {
  hello: ['my-hello', async () => expect(await text('my-hello/')).toBe('Hello, visitor 1\n')],
  hono: ['my-hono', async () => expect(await text('my-hono/?name=%3Cyou')).toContain('<h1>Hello, &lt;you</h1>')],
  'paid-api': [
    'my-paid-api',
    async () => {
      expect((await fetch(`${host.url}/my-paid-api/count`, { method: 'POST', body: 'a b' })).status).toBe(402);
      const paid = await ok(
        'paid-api',
        '--yes',
        'pay',
        '-X',
        'POST',
        '-d',
        'one two three',
        `${host.url}/my-paid-api/count`,
      );
      expect(paid).toContain('"words":3');
    },
  ],
  'static-site': [
    'my-site',
    async () => {
      expect(await text('my-site/')).toContain('It works');
      const lost = await fetch(`${host.url}/my-site/none`);
      expect([lost.status, await lost.text()]).toEqual([404, expect.stringContaining('There is no such page')]);
    },
  ],
  'd1-drizzle': [
    'my-notes',
    async () => {
      await ok('d1-drizzle', 'd1', 'migrations', 'apply');
      expect(await text('my-notes/', { method: 'POST', body: 'first' })).toBe('[{"id":1,"text":"first"}]');
      expect(await text('my-notes/')).toBe('[{"id":1,"text":"first"}]');
    },
  ],
  'speech-caller': ['my-speaker', async () => expect(await text('my-speaker/')).toContain('POST a text')],
};

it.each(Object.keys(TEMPLATES))('%s', async (template) => {
  const [slug, look] = ANSWERS[template] ?? ['', async () => expect.unreachable()];
  const project = path.join(folder, template);
  // Of an earlier try.
  if (existsSync(project)) {
    rmSync(project, { recursive: true });
    await turnpike(['--host-url', host.url, '--data', host.data, 'delete', slug, '--yes'], { cwd: folder });
  }
  expect(await ok('.', 'init', template, '--template', template)).toMatch(
    /Next:\n {2}\$ cd .*\n(.*\n)*.*turnpike deploy$/,
  );
  expect(await ok(template, 'check')).toMatch(new RegExp(`^slug +${slug}\\n`));
  await ok(template, 'deploy', '--yes');
  await look();
});

it('a folder that holds something is left alone', async () => {
  writeFileSync(path.join(folder, 'hello', 'mine.txt'), 'mine');
  const { code, stderr } = await turnpike(['init', 'hello'], { cwd: folder });
  expect(code).toBe(2);
  expect(stderr).toContain('is not empty');
});

it('all are listed for their wallet, and for no other', async () => {
  const listed = await ok('.', 'list');
  for (const [slug] of Object.values(ANSWERS)) expect(listed).toMatch(new RegExp(`^${slug} +active +version \\d`, 'm'));
  expect(await ok('.', '--wallet', 'test:5', 'list')).toBe('none');
});
