/**
 * The chain of paid rows, in a process of its own, as a public network is to a host: in the default configuration the
 * supervisor serves the RPC of the embedded chain, to payers and to peers too, and would be charged for it.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { HostOptions, LocalNetworkFile } from '../../e2e/support/host.ts';

export interface PaymentChain {
  /** How a host is started that is paid on it. */
  options: HostOptions & { data: string };
  network: LocalNetworkFile;
  stop(): Promise<void>;
}

/** A chain, and a data folder with the keys of the host that is to use it. */
export async function startPaymentChain(): Promise<PaymentChain> {
  const data = await mkdtemp(path.join(tmpdir(), 'tp-bench-'));
  const program = fileURLToPath(new URL('payment-chain-process.ts', import.meta.url));
  const child = spawn(process.execPath, [program, data], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const ended = exited.then(([code]) => {
    throw new Error(`the chain of the bench ended with ${code}`);
  });
  await Promise.race([once(child.stdout, 'data'), ended]);
  ended.catch(() => {});
  const file = await readFile(path.join(data, 'local-network.json'), 'utf8');
  const network = JSON.parse(file) as LocalNetworkFile;
  const { rpcUrl, chainId, token, x402, wallets } = network;
  const place = { rpcUrl, recipient: wallets[0]?.address, testMoney: true };
  const also = [
    { ...place, network: `tempo:${chainId}`, token },
    { ...place, network: x402.network, token: x402.token },
  ];
  return {
    network,
    options: { data, flags: { 'payments-network': 'none', 'payments-also': JSON.stringify(also) } },
    async stop() {
      child.stdin.end();
      await exited;
      await rm(data, { recursive: true, force: true });
    },
  };
}
