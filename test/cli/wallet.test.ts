import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { fakeTerminal, runCommand } from './fake-terminal.ts';

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'turnpike-home-'));
});
afterEach(() => rmSync(home, { recursive: true }));

const key = generatePrivateKey();
const { address } = privateKeyToAccount(key);
const path = () => join(home, '.config/turnpike/wallet.json');

async function wallet(args: string[], options: Parameters<typeof fakeTerminal>[0] = {}): Promise<string> {
  const terminal = fakeTerminal({ home, cwd: home, ...options });
  // Else the test wallets of a host that was started in the project's folder would be found.
  const data = args.includes('--data') ? [] : ['--data', join(home, 'data')];
  await runCommand(['wallet', ...args, ...data], { terminal, fetch });
  return terminal.stdout + terminal.stderr;
}

test('create makes a wallet for its owner only, and says its address, never its key', async () => {
  const said = await wallet(['create', '--json']);
  const stored = JSON.parse(readFileSync(path(), 'utf8'));
  expect(JSON.parse(said)).toEqual({ address: privateKeyToAccount(stored.privateKey).address, file: path() });
  expect(said).not.toContain(stored.privateKey.slice(2));
  expect(statSync(path()).mode & 0o777).toBe(0o600);
});

test('import takes the key from stdin and never over another wallet', async () => {
  const said = await wallet(['import'], { input: `${key}\n` });
  expect(said).toContain(address);
  expect(said).not.toContain(key.slice(2));
  await expect(wallet(['import'], { input: generatePrivateKey() })).rejects.toMatchObject({ exit: 'usage' });
  expect(await wallet(['show'])).toContain(address);
});

test.each(['', '0x12', 'not a key', `0x${'0'.repeat(64)}`, `0x${'f'.repeat(64)}`])(
  'a key that is none (%s) is refused',
  async (input) => {
    await expect(wallet(['import'], { input })).rejects.toMatchObject({ exit: 'usage' });
  },
);

test('a wallet that others may read is refused', async () => {
  await wallet(['import'], { input: key });
  chmodSync(path(), 0o644);
  await expect(wallet(['show'])).rejects.toThrow(/chmod 600/);
});

test('the order: flag, key in the environment, file in the environment, test wallet of a local host, own wallet', async () => {
  await wallet(['import'], { input: key });
  const keys = Array.from({ length: 4 }, () => generatePrivateKey());
  const [flag, inEnv, file, test] = keys.map((one) => privateKeyToAccount(one).address);
  for (const index of [0, 2]) writeFileSync(join(home, `${index}.key`), keys[index]!, { mode: 0o600 });
  mkdirSync(join(home, 'data'));
  writeFileSync(join(home, 'data/host.json'), '{"port":8499}');
  writeFileSync(
    join(home, 'data/local-network.json'),
    JSON.stringify({
      rpcUrl: 'http://127.0.0.1:1',
      chainId: 1337,
      token: address,
      x402: { network: 'eip155:1337', token: address, name: 'USDC', version: '2' },
      wallets: [{ address: test, privateKey: keys[3] }],
    }),
  );
  // A folder in which no host has been is a stranger's.
  expect(await wallet(['show'])).toContain(address);
  mkdirSync(join(home, 'data/run'));
  const host = createServer().listen(join(home, 'data/run/operator.sock'));
  await once(host, 'listening');
  onTestFinished(() => void host.close());
  const env = { TURNPIKE_PRIVATE_KEY: keys[1]!, TURNPIKE_WALLET: '2.key' };
  expect(await wallet(['show', '--wallet', '0.key'], { env })).toContain(flag);
  expect(await wallet(['show'], { env })).toContain(inEnv);
  expect(await wallet(['show'], { env: { TURNPIKE_WALLET: '2.key' } })).toContain(file);
  expect(await wallet(['show'])).toContain(test);
  expect(await wallet(['show', '--wallet', 'test:0'])).toContain(test);
  await expect(wallet(['show', '--wallet', 'test:1'])).rejects.toThrow(/no test wallet 1/);
  const typed = wallet(['show'], { env: { TURNPIKE_WALLET: keys[1]! } });
  await expect(typed).rejects.toThrow('TURNPIKE_WALLET takes the name of a file, not a key');
  await expect(typed).rejects.not.toThrow(keys[1]!);
  // Another port is another host; its test money is not this one's.
  expect(await wallet(['show', '--host-url', 'http://localhost:9000'])).toContain(address);
  expect(await wallet(['show', '--host-url', 'https://host.example'])).toContain(address);
});

test('no wallet anywhere: says how to get one, and whether a host is there to bring one', async () => {
  await expect(wallet(['show', '--host-url', 'https://host.example'])).rejects.toThrow(/TURNPIKE_PRIVATE_KEY\.$/);
  const host = createServer().listen(0, '127.0.0.1');
  await once(host, 'listening');
  const { port } = host.address() as AddressInfo;
  const asked = () => wallet(['show', '--host-url', `http://127.0.0.1:${port}`]);
  await expect(asked()).rejects.toThrow(/wallet create.* has no test wallets that can be read here\.$/);
  await new Promise((resolve) => host.close(resolve));
  await expect(asked()).rejects.toThrow(/^No host answers at .*npm start.* wallet create/);
});
