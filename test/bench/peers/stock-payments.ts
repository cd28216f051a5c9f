/** The servers that payers' own packages bring, in a process of their own, on the chain of a host of ours. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { LocalNetworkFile } from '../../e2e/support/host.ts';
import type { Subject } from '../subject.ts';
import type { StockSettings } from './stock-server.ts';

/** Paths: `/charge` and `/session` (mppx), `/exact` and `/upto` (@x402/hono); 0.001 USD each. @param wallet that is paid */
export async function startStockPayments(network: LocalNetworkFile, wallet: number): Promise<Subject> {
  const key = network.wallets[wallet]?.privateKey;
  if (!key) throw new Error(`there is no test wallet ${wallet}`);
  const program = fileURLToPath(new URL('stock-server.ts', import.meta.url));
  const settings: StockSettings = { network, key };
  const child = spawn(process.execPath, [program], {
    env: { ...process.env, STOCK: JSON.stringify(settings) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const ended = exited.then(([code]) => {
    throw new Error(`the stock servers ended with ${code}`);
  });
  const [port] = await Promise.race([once(child.stdout, 'data'), ended]);
  ended.catch(() => {});
  return {
    name: 'stock',
    origin: `http://127.0.0.1:${String(port).trim()}`,
    pids: () => [child.pid ?? 0],
    async stop() {
      child.kill();
      await exited;
    },
  };
}
