/** The operator's command on what went wrong with money: a refund that somebody else owes, and a payment that is stuck. */
import { readdirSync, readFileSync } from 'node:fs';
import { erc20Abi } from 'viem';
import { writeContract } from 'viem/actions';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { hostCommands } from '../../host/cli/host-commands.ts';
import { run as runCommand } from '../../host/cli/run.ts';
import { localTempoChain } from '../../host/payments/network/chains.ts';
import { tempoClient } from '../../host/payments/network/clients.ts';
import { fakeTerminal } from '../cli/fake-terminal.ts';
import { account, balances, deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-command.ts';
import { until } from './support/until.ts';

const HANDLER = `let waiting = 0, open = false;
export default {
  async fetch(request) {
    switch (new URL(request.url).pathname) {
      case '/breaks': return new Response(new ReadableStream({
        async start(controller) {
          controller.enqueue(new TextEncoder().encode('some'));
          await scheduler.wait(Number(new URL(request.url).searchParams.get('after')));
          controller.error(new Error('broken'));
        },
      }));
      case '/gated':
        waiting += 1;
        while (!open) await scheduler.wait(10);
        return new Response('done');
      case '/open': open = true;
    }
    return Response.json({ waiting });
  },
};`;

let host: TestHost;

beforeAll(async () => {
  host = await startHost();
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'shop',
    code: HANDLER,
    paidRoutes: ['/breaks', '/gated'].map((path) => ({ method: 'GET', path, price: '0.01' })),
  });
});
afterAll(() => host?.stop());

const shop = async (path: string) => (await (await fetch(`${host.url}/shop/${path}`)).json()) as { waiting: number };

async function payments(...args: string[]) {
  const terminal = fakeTerminal({ cwd: host.data, home: host.data });
  const argv = ['payments', ...args, '--host-url', host.url, '--data', host.data];
  const code = await runCommand(argv, '0.0.0', { terminal, fetch }, hostCommands({ terminal, fetch }));
  return { code, text: terminal.stdout + terminal.stderr };
}

/** The command that the listing names for an open item of a kind. */
async function commandFor(kind: string): Promise<string[]> {
  const line = await until(async () => (await payments()).text.split('\n').find((each) => each.includes(kind)));
  return /turnpike payments (.+)$/.exec(line.trim())?.[1]?.split(' ') ?? [];
}

test('the help names every command', async () => {
  const { stdout, code } = await turnpike(['payments', '--help'], { cwd: host.data });
  expect(code).toBe(0);
  for (const name of ['list', 'retry', 'refund', 'waive', 'paid', 'resume', 'reconcile', 'csv'])
    expect(stdout).toContain(name);
});

test('a paid answer that breaks off never looks whole', async () => {
  for (const after of [0, 1, 50]) {
    const broken = await mppFetch(host.network, 1)(`${host.url}/shop/breaks?after=${after}`);
    const text = await broken.text().catch(() => 'cut off');
    // Where nothing of it went out yet, the payer hears what became of its money.
    if (text !== 'cut off') expect([broken.status, JSON.parse(text)]).toMatchObject([502, { refund: 'owed' }]);
  }
});

test('a refund that only the tenant can send is its debt, listed with the command that closes it', async () => {
  const [name, id = '', ...options] = await commandFor('tenant-debt');
  expect([name, ...options]).toEqual(['waive']);
  // The money is with the tenant: the host has nothing to send.
  expect((await payments('retry', id)).code).not.toBe(0);
  expect((await payments('paid', id)).text).toContain('--reference');
  expect((await payments('paid', id, '--reference', '0x1')).text).toContain('hash of the transaction');
  // The tenant gives it back from its own wallet, and the operator notes that.
  const reference = await transfer(0, account(host.network, 1).address, 10_000n);
  const paid = await payments('paid', id, '--reference', reference);
  expect([paid.code, paid.text]).toEqual([0, expect.stringContaining('is resolved')]);
  const again = await payments('waive', id);
  expect(again.code).not.toBe(0);
  expect(again.text).toContain('turnpike payments');
  // What broke off once the debt was known had been collected, and the host gave it back itself.
  await until(async () => {
    const { text } = await payments();
    const other = /(out_\S+)\s+tenant-debt/.exec(text)?.[1];
    if (other !== undefined) expect((await payments('waive', other)).code).toBe(0);
    return text.includes('nothing is stuck or owed');
  });
});

test('a payment that the network did not answer is pending, and done once when it answers', async () => {
  const chain = anvilOf(host.pid);
  const payer = account(host.network, 2).address;
  const before = (await balances(host.network, payer)).mpp;
  let authorization = '';
  const sender = mppFetch(host.network, 2, async (input, init) => {
    const request = new Request(input, init);
    authorization = request.headers.get('authorization') ?? authorization;
    return await fetch(request);
  });
  const call = sender(`${host.url}/shop/gated`);
  await until(async () => ((await shop('')).waiting === 1 ? true : undefined));
  process.kill(chain, 'SIGSTOP');
  try {
    await shop('open');
    const pending = await call;
    const problem = (await pending.json()) as { code: string };
    expect([pending.status, problem.code]).toEqual([503, 'payment_pending']);
    const [name, id = ''] = await commandFor('pending-settlement');
    expect([name, id]).toEqual(['retry', pending.headers.get('x-payment-id')]);
    expect((await payments('waive', id)).text).toContain('can only be retried');
  } finally {
    process.kill(chain, 'SIGCONT');
  }
  const [name = '', id = ''] = await commandFor('pending-settlement').catch(() => []);
  // The host asks again by itself every few seconds: either of them may be the first.
  if (id !== '') expect((await payments(name, id)).text).toMatch(/is resolved|is not pending|still open/);
  await until(async () => ((await payments()).text.includes('nothing is stuck or owed') ? true : undefined));
  const retry = await fetch(`${host.url}/shop/gated`, { headers: { authorization } });
  expect([retry.status, await retry.text()]).toEqual([200, 'done']);
  expect(before - (await balances(host.network, payer)).mpp).toBe(10_000n);
  expect(await payments('reconcile')).toEqual({ code: 0, text: expect.stringContaining('no difference') });
});

/** Sends tokens from a test wallet. @returns the transaction's hash */
async function transfer(from: number, to: `0x${string}`, amount: bigint): Promise<string> {
  const client = tempoClient(localTempoChain(host.network.chainId, host.network.rpcUrl), account(host.network, from));
  const { token } = host.network;
  return await writeContract(client, {
    address: token,
    abi: erc20Abi,
    functionName: 'transfer',
    args: [to, amount],
  } as never);
}

/** The chain of a host: a child of its process. */
function anvilOf(parent: number): number {
  const pid = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .find((name) => {
      try {
        const fields = readFileSync(`/proc/${name}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
        return Number(fields[1]) === parent && readFileSync(`/proc/${name}/cmdline`, 'utf8').includes('anvil');
      } catch {
        return false;
      }
    });
  if (!pid) throw new Error('no chain runs');
  return Number(pid);
}
