import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Challenge } from 'mppx';
import { generatePrivateKey } from 'viem/accounts';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { fakeTerminal, runCommand } from './fake-terminal.ts';

const HOST = ['--host-url', 'https://host.example'];
let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'turnpike-account-'));
});
afterEach(() => rmSync(home, { recursive: true }));

/** Answers by method and path; keeps what it was sent. */
function platform(answers: Record<string, (request: Request) => Response>) {
  const requests: Request[] = [];
  const fetchIt = async (input: unknown, init?: RequestInit) => {
    const request = new Request(input as string, init);
    requests.push(request.clone());
    return (
      answers[`${request.method} ${new URL(request.url).pathname}`]?.(request) ?? new Response('{}', { status: 404 })
    );
  };
  return { requests, fetch: fetchIt as typeof fetch };
}

test('register keeps the credential for its owner only, and never prints it', async () => {
  const { fetch } = platform({
    'POST /pay/accounts/anonymous': () =>
      Response.json({ accountId: 'acc_1', credential: 'tpk_secret' }, { status: 201 }),
  });
  const terminal = fakeTerminal({ home });
  await runCommand(['account', 'register', ...HOST], { terminal, fetch });
  expect(terminal.stdout).toContain('acc_1');
  expect(terminal.stdout + terminal.stderr).not.toContain('tpk_secret');
  const folder = join(home, '.config/turnpike/accounts');
  const [file = ''] = readdirSync(folder);
  expect(statSync(join(folder, file)).mode & 0o777).toBe(0o600);
  expect(JSON.parse(readFileSync(join(folder, file), 'utf8'))).toMatchObject({ credential: 'tpk_secret' });
});

test('the credential of one host is never sent to another', async () => {
  const { fetch, requests } = platform({
    'POST /pay/accounts/anonymous': () =>
      Response.json({ accountId: 'acc_1', credential: 'tpk_secret' }, { status: 201 }),
  });
  await runCommand(['account', 'register', ...HOST], { terminal: fakeTerminal({ home }), fetch });
  const other = runCommand(['account', 'balance', '--host-url', 'https://other.example'], {
    terminal: fakeTerminal({ home }),
    fetch,
  });
  await expect(other).rejects.toMatchObject({ exit: 'usage' });
  expect(requests).toHaveLength(1);
});

test('a top-up asks as the account and pays as the wallet', async () => {
  const challenge = Challenge.serialize(
    Challenge.from({
      id: 'id',
      realm: 'host.example',
      method: 'tempo',
      intent: 'charge',
      request: {
        amount: '5000000',
        currency: '0x20c0000000000000000000000000000000000000',
        recipient: `0x${'a'.repeat(40)}`,
        methodDetails: { chainId: 42431 },
      },
    } as never),
  );
  const { fetch, requests } = platform({
    'POST /pay/accounts/anonymous': () =>
      Response.json({ accountId: 'acc_1', credential: 'tpk_secret' }, { status: 201 }),
    'POST /pay/deals-watches/plans/default/purchase': () =>
      new Response('{}', { status: 402, headers: { 'www-authenticate': challenge } }),
  });
  const terminal = fakeTerminal({ home, env: { TURNPIKE_PRIVATE_KEY: generatePrivateKey() } });
  await runCommand(['account', 'register', ...HOST], { terminal, fetch });
  const over = runCommand(['account', 'topup', '5.00', '--max-pay', '4.99', ...HOST], { terminal, fetch });
  await expect(over).rejects.toMatchObject({ exit: 'payment' });
  expect(requests[1]?.headers.get('authorization')).toBe('Bearer tpk_secret');
  expect(await requests[1]?.json()).toEqual({ amountUsd: '5.00' });
  expect(requests).toHaveLength(2);
});

test('login waits for the person, and says what went wrong', async () => {
  const { fetch } = platform({
    'POST /pay/oauth/device_authorization': () =>
      Response.json({
        device_code: 'd',
        user_code: 'ABCD',
        verification_uri: 'https://host.example/device',
        expires_in: 60,
        interval: 0,
      }),
    'POST /pay/oauth/token': () => Response.json({ error: 'access_denied' }, { status: 400 }),
  });
  const terminal = fakeTerminal({ home });
  await expect(runCommand(['account', 'login', ...HOST], { terminal, fetch })).rejects.toThrow(/access_denied/);
  expect(terminal.stderr).toContain('ABCD');
});

test('login goes on through an outage of the host', async () => {
  const answers = [
    () => new Response('<html>back soon</html>', { status: 503 }),
    () => new Response('', { status: 502 }),
    () => new Response('', { status: 504 }),
    () => {
      throw new TypeError('fetch failed');
    },
    () => Response.json({ error: 'authorization_pending' }, { status: 400 }),
    () => Response.json({ access_token: 'tpk_secret', account_id: 'acc_1' }),
  ];
  const { fetch, requests } = platform({
    'POST /pay/oauth/device_authorization': () =>
      Response.json({ device_code: 'd', user_code: 'ABCD', verification_uri: 'x', expires_in: 60, interval: 0 }),
    'POST /pay/oauth/token': () => answers.shift()?.() ?? Response.error(),
  });
  const terminal = fakeTerminal({ home });
  await runCommand(['account', 'login', ...HOST], { terminal, fetch });
  expect(terminal.stdout).toContain('acc_1');
  expect(requests).toHaveLength(7);
});

test('login ends with its code, where the host stays away', async () => {
  const { fetch } = platform({
    'POST /pay/oauth/device_authorization': () =>
      Response.json({ device_code: 'd', user_code: 'ABCD', verification_uri: 'x', expires_in: 0.1, interval: 0.02 }),
    'POST /pay/oauth/token': () => new Response('', { status: 503 }),
  });
  const login = runCommand(['account', 'login', ...HOST], { terminal: fakeTerminal({ home }), fetch });
  await expect(login).rejects.toThrow(/not confirmed in time/);
});

test('a damaged file of an account is named, and never written over', async () => {
  const { fetch, requests } = platform({
    'POST /pay/accounts/anonymous': () =>
      Response.json({ accountId: 'acc_1', credential: 'tpk_secret' }, { status: 201 }),
  });
  const turnpike = (...args: string[]) =>
    runCommand(['account', ...args, ...HOST], { terminal: fakeTerminal({ home }), fetch });
  await turnpike('register');
  const folder = join(home, '.config/turnpike/accounts');
  const file = join(folder, readdirSync(folder)[0] ?? '');
  writeFileSync(file, '{"accountId": "acc_1"');
  for (const command of [['balance'], ['topup', '5.00']]) {
    const read = turnpike(...command);
    await expect(read).rejects.toMatchObject({ exit: 'usage' });
    await expect(read).rejects.toThrow(`${file} is damaged: move it away and log in again.`);
  }
  await expect(turnpike('login')).rejects.toThrow(
    `There is an account on https://host.example already: one, in ${file}. Move it away first.`,
  );
  expect(requests).toHaveLength(1);
});

test('a second account never takes the place of the first, whose credit would be lost', async () => {
  let made = 0;
  const { fetch } = platform({
    'POST /pay/accounts/anonymous': () =>
      Response.json({ accountId: `acc_${++made}`, credential: `tpk_${made}` }, { status: 201 }),
  });
  await runCommand(['account', 'register', ...HOST], { terminal: fakeTerminal({ home }), fetch });
  const again = runCommand(['account', 'register', ...HOST], { terminal: fakeTerminal({ home }), fetch });
  await expect(again).rejects.toThrow(/acc_1.*Move it away/);
  const folder = join(home, '.config/turnpike/accounts');
  const [file = ''] = readdirSync(folder);
  expect(readFileSync(join(folder, file), 'utf8')).toContain('tpk_1');
});
