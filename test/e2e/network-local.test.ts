/** The local network as a program: what it writes, what it refuses, and that it forgets nothing when killed. */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Hex, parseTransaction } from 'viem';
import { Actions } from 'viem/tempo';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  mppBalance,
  rpc,
  startTestNetwork,
  stopTestNetwork,
  type TestNetwork,
  walletOf,
  x402Balance,
} from './support/local-network.ts';
import { until } from './support/until.ts';

let network: TestNetwork;

beforeAll(async () => {
  network = await startTestNetwork();
});
afterAll(() => stopTestNetwork(network));

function transfer(from: number, to: number, amount: bigint): Promise<unknown> {
  return Actions.token.transferSync(
    network.mpp.getClient(walletOf(network, from)) as never,
    {
      token: network.mpp.currency,
      to: walletOf(network, to).address,
      amount,
      nonceKey: 'expiring',
    } as never,
  );
}

describe('what it writes', () => {
  test('local-network.json says all that a payer needs, for its owner only', async () => {
    const path = join(network.folder, 'local-network.json');
    const file = JSON.parse(readFileSync(path, 'utf8'));
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(file).toEqual({
      rpcUrl: network.mpp.rpcUrl,
      chainId: 1337,
      token: network.mpp.currency,
      x402: { network: 'eip155:84532', token: network.x402.token, name: 'USDC', version: '2' },
      wallets: network.wallets,
    });
    expect((await rpc(file.rpcUrl, { id: 1, method: 'eth_chainId' })).body.result).toBe('0x539');
  });

  test('every wallet is funded in both tokens, and the recipient starts with nothing', async () => {
    expect(network.wallets!.length).toBeGreaterThanOrEqual(5);
    for (const { address } of network.wallets!) {
      expect(await mppBalance(network, address)).toBe(10_000_000_000n);
      expect(await x402Balance(network, address)).toBe(10_000_000_000n);
    }
    expect(await mppBalance(network, network.mpp.recipient)).toBe(0n);
  });

  test('no key is in any argument or environment of the chain', () => {
    const shown = ['cmdline', 'environ'].map((part) => readFileSync(`/proc/${network.pid}/${part}`, 'latin1')).join();
    for (const { privateKey } of network.wallets!) expect(shown).not.toContain(privateKey.slice(2));
  });
});

describe('what the gateway refuses', () => {
  test('methods that forge, alone and in a batch', async () => {
    const forge = { id: 7, method: 'anvil_setBalance', params: [network.wallets![0]!.address, '0x1'] };
    expect((await rpc(network.mpp.rpcUrl, forge)).body).toMatchObject({ id: 7, error: { code: -32601 } });
    const { body } = await rpc(network.mpp.rpcUrl, [forge, { id: 8, method: 'eth_chainId' }]);
    expect(body).toMatchObject([
      { id: 7, error: { code: -32601 } },
      { id: 8, result: '0x539' },
    ]);
  });

  test('minting by anybody', async () => {
    const { body } = await rpc(network.mpp.rpcUrl, {
      id: 1,
      method: 'eth_call',
      params: [
        { from: network.wallets![0]!.address, to: network.x402.token, data: mintData(network.wallets![0]!.address) },
      ],
    });
    expect(body.error.message).toContain('caller is not the minter');
  });

  test('large bodies, foreign hosts, other verbs, and what is no JSON', async () => {
    const large = await fetch(network.mpp.rpcUrl, { method: 'POST', body: 'x'.repeat(1_100_000) });
    expect(large.status).toBe(413);
    expect(await hostStatus('rebound.example')).toBe(403);
    expect(await hostStatus('localhost')).toBe(200);
    expect((await fetch(network.mpp.rpcUrl)).status).toBe(405);
    expect((await rpc(network.mpp.rpcUrl, 'nonsense')).body.error.code).toBe(-32700);
  });

  test('what a viem signs that is newer than the chain, and says which one to take', async () => {
    const from = network.wallets?.[0]?.address;
    const nonceKey = `0x${'f'.repeat(64)}`;
    const validBefore = `0x${(Math.floor(Date.now() / 1000) + 20).toString(16)}`;
    const transaction = { from, type: '0x76', nonce: '0x1', nonceKey, validBefore, calls: [{ to: from, value: '0x' }] };
    const call = { jsonrpc: '2.0', id: 1, method: 'eth_estimateGas', params: [transaction] };
    const answer = await fetch(network.x402?.rpcUrl ?? '', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(call),
    });
    expect(await answer.json()).toMatchObject({ error: { message: expect.stringContaining('viem@2.56.9') } });
  });

  test('transactions that the chain refuses do not come back on a replay', async () => {
    const { body } = await rpc(network.mpp.rpcUrl, { id: 1, method: 'eth_sendRawTransaction', params: ['0x02c0'] });
    expect(body.error).toBeDefined();
    await killChain();
    expect((await rpc(network.mpp.rpcUrl, { id: 1, method: 'eth_chainId' })).status).toBe(200);
  });

  test('the chain’s own port is out of reach where the system has network namespaces', async () => {
    const canUnshare = (() => {
      try {
        execFileSync('unshare', ['--net', 'true']);
        return true;
      } catch {
        return false;
      }
    })();
    const listening = readFileSync('/proc/net/tcp', 'utf8');
    const own = readFileSync(`/proc/${network.pid}/net/tcp`, 'utf8');
    if (canUnshare) expect(own).not.toBe(listening);
    else expect(own).toBe(listening);
  });
});

describe('when things are killed', () => {
  test('a killed chain comes back by itself with every payment that was answered, and says 503 meanwhile', async () => {
    const before = [
      await mppBalance(network, network.wallets![0]!.address),
      await mppBalance(network, network.wallets![1]!.address),
    ];
    let answered = 0n;
    for (let kill = 0; kill < 6; kill++) {
      const payments = (async () => {
        for (let payment = 0; payment < 8; payment++) {
          await transfer(0, 1, 1n).then(
            () => answered++,
            () => undefined,
          );
        }
      })();
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 120));
      await killChain();
      await payments;
    }
    const after = [
      await mppBalance(network, network.wallets![0]!.address),
      await mppBalance(network, network.wallets![1]!.address),
    ];
    const moved = after[1]! - before[1]!;
    expect(before[0]! - after[0]!).toBe(moved);
    // A payment that was in flight at a kill may have gone through without an answer; none that was answered is lost.
    expect(moved).toBeGreaterThanOrEqual(answered);
    expect(moved).toBeLessThanOrEqual(48n);
    expect(answered).toBeGreaterThan(20n);
  });

  test('receipts outlive the kill, and the clock goes on', async () => {
    const receipt = (await transfer(2, 3, 5n)) as { receipt: { transactionHash: Hex } };
    await killChain();
    const found = await rpc(network.mpp.rpcUrl, {
      id: 1,
      method: 'eth_getTransactionReceipt',
      params: [receipt.receipt.transactionHash],
    });
    expect(found.body.result.status).toBe('0x1');
    const block = await network.x402.getClient().getBlock();
    expect(Math.abs(Number(block.timestamp) - Date.now() / 1000)).toBeLessThan(3);
  });

  test('the same transaction sent twice is one payment', async () => {
    const account = walletOf(network, 4);
    const client = network.x402.getClient(account);
    const before = await x402Balance(network, walletOf(network, 5));
    const prepared = await client.prepareTransactionRequest({
      to: network.x402.token,
      data: transferData(walletOf(network, 5).address, 9n),
    } as never);
    const raw = await account.signTransaction(prepared as never);
    expect(parseTransaction(raw as never).maxFeePerGas ?? 0n).toBe(0n);
    const send = { id: 1, method: 'eth_sendRawTransaction', params: [raw] };
    const [first, second] = await Promise.all([rpc(network.mpp.rpcUrl, send), rpc(network.mpp.rpcUrl, send)]);
    expect(second.body.result).toBe(first.body.result);
    expect(await x402Balance(network, walletOf(network, 5))).toBe(before + 9n);
  });

  test('a host that is killed leaves no chain behind, and the next start has its payments', async () => {
    const balance = await mppBalance(network, network.wallets![6]!.address);
    const { folder } = network;
    await network.close();
    const script = fileURLToPath(new URL('./fixtures/run-local-network.ts', import.meta.url));
    const host = spawn(process.execPath, [script, folder], { stdio: ['ignore', 'pipe', 'inherit'] });
    const pid = await new Promise<number>((resolve) => host.stdout.once('data', (line) => resolve(Number(line))));
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    host.kill('SIGKILL');
    const started = startTestNetwork({ folder });
    await until(() => !existsSync(`/proc/${pid}`));
    network = await started;
    expect(await mppBalance(network, network.wallets![6]!.address)).toBe(balance - 25n);
  });
});

async function killChain(): Promise<void> {
  const { pid } = network;
  if (pid === undefined) return;
  process.kill(pid, 'SIGKILL');
  let refusedMeanwhile = false;
  await until(async () => {
    const { status, body } = await rpc(network.mpp.rpcUrl, { id: 1, method: 'eth_blockNumber' });
    if (status === 503) {
      expect(body.error.code).toBe(-32603);
      refusedMeanwhile = true;
    }
    return status === 200 && network.pid !== undefined && network.pid !== pid;
  });
  expect(refusedMeanwhile).toBe(true);
}

function hostStatus(host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const call = request(network.mpp.rpcUrl, { method: 'POST', headers: { host } }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    call.on('error', reject);
    call.end('{"id":1,"method":"eth_chainId"}');
  });
}

function mintData(to: Hex): Hex {
  return `0x40c10f19${to.slice(2).toLowerCase().padStart(64, '0')}${'1'.padStart(64, '0')}`;
}

function transferData(to: Hex, amount: bigint): Hex {
  return `0xa9059cbb${to.slice(2).toLowerCase().padStart(64, '0')}${amount.toString(16).padStart(64, '0')}`;
}
