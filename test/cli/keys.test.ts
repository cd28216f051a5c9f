import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { endOf } from '../../host/cli/keys.ts';
import { fakeTerminal, runCommand } from './fake-terminal.ts';

const KEY = `tpk_0123456789ab_${'x'.repeat(43)}`;

test.each([
  ['90d', '2027-01-30T00:00:00.000Z'],
  ['12h', '2026-11-01T12:00:00.000Z'],
  ['2027-03-01', '2027-03-01T00:00:00.000Z'],
])('--until %s', (text, end) => expect(endOf(text, Date.parse('2026-11-01T00:00:00Z'))).toBe(end));

test.each(['90', '0d', '-1d', 'soon', '1', '90dd'])('--until %s is not understood', (text) =>
  expect(() => endOf(text, 0)).toThrow('--until'),
);

/** What the command asks of a host that answers one thing to everything. */
async function asked(
  args: string[],
  answer: () => Response,
  env: Record<string, string> = { TURNPIKE_DEPLOY_KEY: KEY },
) {
  const folder = mkdtempSync(path.join(tmpdir(), 'tp-keys-'));
  try {
    writeFileSync(path.join(folder, 'turnpike.json'), '{"slug":"hello","entry":"index.js"}');
    writeFileSync(path.join(folder, 'index.js'), "export default { fetch: () => new Response('hi') }");
    const requests: string[] = [];
    const fetch = (async (url: URL, { method, headers, body }: RequestInit) => {
      const key = (headers as Record<string, string>).authorization;
      requests.push(`${method} ${url.pathname}${key ? ` ${key}` : ''}${body ? ' with a body' : ''}`);
      return answer();
    }) as unknown as typeof globalThis.fetch;
    const terminal = fakeTerminal({ env, cwd: folder, home: folder });
    const failure = await runCommand([...args, '--host-url', 'https://h.example'], { terminal, fetch }).catch(
      (error: Error) => error,
    );
    return { requests, failure, said: terminal.stdout + terminal.stderr };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('deploy with a key, where nothing is deployed, sends neither code nor key', async () => {
  const none = () => Response.json({ code: 'not_found', status: 404, detail: 'None.' }, { status: 404 });
  const { requests, failure } = await asked(['deploy', '--yes'], none);
  expect(failure).toMatchObject({ exit: 'usage', message: expect.stringContaining('Nothing was sent') });
  expect(requests).toEqual(['GET /_admin/get/hello']);
});

test('deploy with a key updates, without a wallet and without a question', async () => {
  const metadata = {
    slug: 'hello',
    state: 'active',
    bindings: {},
    crons: [],
    domains: [],
    paidRoutes: [],
    runtime: {},
  };
  const { requests, failure } = await asked(['deploy', '--yes'], () => Response.json(metadata));
  expect(failure).toBeUndefined();
  expect(requests).toEqual(['GET /_admin/get/hello', `PUT /_admin/code/hello Bearer ${KEY} with a body`]);
});

test('a key that is none is not sent, and not said', async () => {
  const env = { TURNPIKE_DEPLOY_KEY: 'secret-but-wrong' };
  const { requests, failure, said } = await asked(['logs'], () => Response.json({}), env);
  expect(failure).toMatchObject({ exit: 'usage', message: expect.stringContaining('TURNPIKE_DEPLOY_KEY') });
  expect(requests).toEqual([]);
  expect(`${said}${failure}`).not.toContain('secret-but-wrong');
});

test('a tail with a key asks for no token, and ends when the key does', async () => {
  const over = () => Response.json({ code: 'unauthorized', status: 401, detail: 'The key is wrong.' }, { status: 401 });
  const { requests, failure } = await asked(['logs', '-f'], over);
  expect(failure).toMatchObject({ exit: 'refused', message: 'The key is wrong.' });
  expect(requests).toEqual([`GET /_admin/hello/logs Bearer ${KEY}`]);
});

test('a preview takes no settings: they would be lost', async () => {
  const metadata = () => Response.json({ slug: 'hello', state: 'active' });
  const { requests, failure } = await asked(['deploy', '--preview', '--secret', 'A=b'], metadata);
  expect(failure).toMatchObject({ exit: 'usage', message: expect.stringContaining('--secret') });
  expect(requests).toEqual(['GET /_admin/get/hello']);
});
