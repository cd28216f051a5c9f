/** Starting and stopping the real host: refusals, restarts of its parts, nothing left behind. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { alive, commandOf, processTree } from '../bench/processes.ts';
import { expectTime } from '../times.ts';
import { deploy, mppFetch } from './support/callers.ts';
import { fromLauncher, startHost, type TestHost } from './support/host.ts';
import { freePort } from './support/ports.ts';
import { onSmallDisk } from './support/small-disk.ts';
import { until } from './support/until.ts';

const MAIN = fileURLToPath(new URL('../../host/main.ts', import.meta.url));
const HELLO = `export default { fetch: () => new Response('hello') }`;

function run(args: string[], env: Record<string, string> = {}): Promise<{ code: number; text: string }> {
  return execute([process.execPath, MAIN, ...args], env);
}

function execute(
  [program, ...args]: [string, ...string[]],
  env: Record<string, string> = {},
): Promise<{ code: number; text: string }> {
  return new Promise((resolve) => {
    execFile(
      program,
      args,
      { env: { PATH: process.env.PATH ?? '', ...fromLauncher(), ...env }, timeout: 120_000 },
      (error, stdout, stderr) =>
        resolve({ code: typeof error?.code === 'number' ? error.code : 0, text: stdout + stderr }),
    );
  });
}

describe('a host that runs', () => {
  let host: TestHost;
  beforeAll(async () => {
    host = await startHost();
    await deploy(mppFetch(host.network, 0), host.url, { slug: 'hello', code: HELLO });
  });
  afterAll(() => host?.stop());

  it('refuses a second host on its data folder and names the first', async () => {
    const { code, text } = await run(['--port', '0', '--admin-port', '0', '--data', host.data]);
    expect(code).toBe(1);
    expect(text).toMatch(new RegExp(`Another host \\(process ${host.pid}`));
  });

  it('refuses a host on its port', async () => {
    const other = mkdtempSync(path.join(tmpdir(), 'tp-other-'));
    const { code, text } = await run(['--port', String(host.port), '--admin-port', '0', '--data', other]);
    rmSync(other, { recursive: true, force: true });
    expect(code).toBe(1);
    expect(text).toMatch(/--port/);
  });

  it('says on one screen where it is, what money it takes and how it isolates', () => {
    const screen = host.output();
    expect(screen).toContain(`http://localhost:${host.port}`);
    expect(screen).toMatch(/isolation {2}(bwrap|unshare)/);
    expect(screen).toMatch(/network {4}local – test money/);
    for (const { address } of host.network.wallets) expect(screen).toContain(address);
    for (const { privateKey } of host.network.wallets) expect(screen).not.toContain(privateKey);
  });

  it.each([
    ['edge', /host\/edge\/main/],
    ['storage', /store-process\/main/],
    ['egress', /host\/egress\/main/],
    ['workerd', /workerd serve/],
    ['anvil', /^\S*anvil /],
  ])('comes back when %s is killed', async (part, pattern) => {
    await (await fetch(`${host.url}/hello/`)).text();
    const victims = processTree([host.pid]).filter((pid) => pattern.test(commandOf(pid)));
    expect(victims.length, `no process of ${part}`).toBeGreaterThan(0);
    for (const pid of victims) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It went with the one before.
      }
    }
    await until(() => (victims.every((pid) => !alive(pid)) ? true : undefined));
    await until(async () => {
      const health = await fetch(`${host.url}/healthz`).catch(() => undefined);
      const hello = await fetch(`${host.url}/hello/`).catch(() => undefined);
      return health?.status === 200 && hello?.status === 200 ? true : undefined;
    });
    const again = await until(
      async () => (await fetch(`${host.url}/_admin/deploy`, { method: 'POST' })).status === 402 || undefined,
    );
    expect(again).toBe(true);
  });

  it('ends after SIGTERM and leaves no process', async () => {
    const all = processTree([host.pid]);
    expect(all.length).toBeGreaterThan(4);
    const from = performance.now();
    await host.stop();
    expectTime('the end after SIGTERM', performance.now() - from, 10_000);
    await until(
      () => (all.every((pid) => !alive(pid)) ? true : undefined),
      () => all.filter(alive).map(commandOf).join('\n'),
    );
  });
});

it('a host that has just said that it runs ends in order', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tp-brief-'));
  const quick = ['--port', '0', '--admin-port', '0', '--builtin-tenants-enabled', '[]'];
  // With all of its compiled code to keep, which it does as soon as it runs.
  const env = { PATH: process.env.PATH ?? '', PACKED_PACKAGES: process.env.PACKED_PACKAGES ?? '' };
  const host = spawn(process.execPath, [MAIN, ...quick, '--data', path.join(folder, 'data')], { env });
  try {
    await once(host.stdout, 'data');
    host.kill('SIGTERM');
    expect(await once(host, 'exit')).toEqual([0, null]);
  } finally {
    host.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  }
});

it('a new host is ready once all that is switched on answers, and until then nothing is missing', async () => {
  const builtins = ['deals', 'speech'];
  const port = await freePort();
  const answers: { path: string; status: number; retryAfter: string | null }[] = [];
  const asking = new AbortController();
  const ask = async (name: string): Promise<void> => {
    const response = await fetch(`http://127.0.0.1:${port}/${name}/healthz`, { signal: asking.signal }).catch(
      () => undefined,
    );
    if (response)
      answers.push({ path: name, status: response.status, retryAfter: response.headers.get('retry-after') });
    await response?.body?.cancel();
    if (!asking.signal.aborted) setTimeout(() => void ask(name), 20);
  };
  for (const name of builtins) void ask(name);
  const host = await startHost({ builtins, flags: { port: String(port) } }).finally(() => asking.abort());
  try {
    for (const name of builtins) expect((await fetch(`${host.url}/${name}/healthz`)).status, name).toBe(200);
    const { parts } = (await (await fetch(`${host.url}/healthz`)).json()) as { parts: object };
    expect(parts).toMatchObject({
      deals: { state: 'ready' },
      speech: { state: 'ready' },
      'speech-engine': { state: 'ready' },
    });
    const { engines } = (await (await fetch(`${host.url}/speech/healthz`)).json()) as { engines: { read: object } };
    expect(engines.read).toMatchObject({ ok: true, engine: 'embedded' });
    const early = answers.filter(({ status }) => status !== 200);
    expect(early.length).toBeGreaterThan(0);
    expect(early.filter(({ status, retryAfter }) => status !== 503 || !(Number(retryAfter) > 0))).toEqual([]);
  } finally {
    await host.stop();
  }
});

describe('a host that is killed', () => {
  it('takes its processes along and serves again from the same folder within seconds', async () => {
    const host = await startHost();
    let again: TestHost | undefined;
    try {
      await deploy(mppFetch(host.network, 0), host.url, { slug: 'hello', code: HELLO });
      await (await fetch(`${host.url}/hello/`)).text();
      const all = processTree([host.pid]);
      await host.kill();
      await until(
        () => (all.every((pid) => !alive(pid)) ? true : undefined),
        () => all.filter(alive).map(commandOf).join('\n'),
      );
      again = await host.restart();
      expect(await (await fetch(`${again.url}/hello/`)).text()).toBe('hello');
      expect(again.output()).not.toMatch(/operator token \(shown once\)/);
    } finally {
      await again?.stop();
      rmSync(host.data, { recursive: true, force: true });
    }
  });
});

describe('packed packages', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'tp-packed-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('are what the host loads where the launcher made them', async () => {
    writeFileSync(path.join(folder, 'index.json'), JSON.stringify({ mppx: 'mppx.mjs' }));
    writeFileSync(path.join(folder, 'mppx.mjs'), 'loaded the_packed_one');
    const quick = ['--port', '0', '--admin-port', '0', '--builtin-tenants-enabled', '[]'];
    const { code, text } = await run([...quick, '--data', path.join(folder, 'data')], { PACKED_PACKAGES: folder });
    expect(code).toBe(1);
    expect(text).toContain("SyntaxError: Unexpected identifier 'the_packed_one'");
  });

  it('need not be there', async () => {
    const host = await startHost({ env: { PACKED_PACKAGES: path.join(folder, 'removed') } });
    try {
      await deploy(mppFetch(host.network, 0), host.url, { slug: 'hello', code: HELLO });
      expect(await (await fetch(`${host.url}/hello/`)).text()).toBe('hello');
    } finally {
      await host.stop();
    }
  });
});

describe('the command line', () => {
  it.each([
    [['--prot', '1'], /Did you mean --port\?/],
    [['--payments-network', 'moon'], /payments\.network/],
  ])('%j is refused', async (args, message) => {
    const { code, text } = await run(args as string[]);
    expect(code).toBe(1);
    expect(text).toMatch(message);
  });

  it.each([
    ['a file', (data: string) => writeFileSync(data, ''), /data folder .* cannot be used: EEXIST.*--data/],
    ['below a file', (data: string) => writeFileSync(path.dirname(data), ''), /cannot be used: ENOTDIR/],
  ])('a data folder that is %s is named, in one line', async (_, spoil, message) => {
    const above = mkdtempSync(path.join(tmpdir(), 'tp-spoilt-'));
    const data = path.join(above, 'a', 'b');
    if (message.source.includes('EEXIST')) mkdirSync(path.dirname(data));
    spoil(data);
    const { code, text } = await run(['--port', '0', '--admin-port', '0', '--data', data]);
    rmSync(above, { recursive: true });
    expect(code).toBe(1);
    expect(text).toMatch(message);
    expect(text.trim().split('\n')).toHaveLength(1);
  });

  // The lock does not fit into the first, the registry not into the second.
  it.each(['4k', '1m'])('a disk of %s is told to be full', async (size) => {
    const data = mkdtempSync(path.join(tmpdir(), 'tp-full-'));
    const start = [MAIN, '--port', '0', '--admin-port', '0', '--data', data];
    const { code, text } = await execute(onSmallDisk(data, size, [process.execPath, ...start]));
    rmSync(data, { recursive: true });
    expect(code).toBe(1);
    expect(text).toMatch(/^turnpike: The disk is full .* Make room in .*tp-full/m);
  });

  it('refuses test money on a public address', async () => {
    const data = mkdtempSync(path.join(tmpdir(), 'tp-public-'));
    const { code, text } = await run(['--host', '0.0.0.0', '--port', '0', '--admin-port', '0', '--data', data]);
    rmSync(data, { recursive: true, force: true });
    expect(code).toBe(1);
    expect(text).toMatch(/allowTestMoneyInPublic/);
  });

  it('lists every setting in --help', async () => {
    const { text } = await run(['--help']);
    for (const flag of ['--port', '--admin-port', '--data', '--storage-s3-bucket']) expect(text).toContain(flag);
  });
});
