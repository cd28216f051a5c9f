/**
 * A program: the embedded chain with the wallets of a data folder. It prints the URL of its RPC, and ends when its
 * standard input does. Its id is that of the network that its stand-in for USDC is signed for.
 * Argument: the data folder.
 */
import { once } from 'node:events';
import { pino } from 'pino';
import { BASE_SEPOLIA_ID } from '../../../host/local-network/contracts/index.ts';
import { startLocalNetwork } from '../../../host/local-network/index.ts';
import { loadNetworkKeys } from '../../../host/payments/network/keys.ts';

const [, , dataFolder = ''] = process.argv;
const { accounts, wallets } = await loadNetworkKeys(dataFolder);
const chain = await startLocalNetwork({
  chainId: BASE_SEPOLIA_ID,
  port: 0,
  dataFolder,
  wallets,
  senders: [accounts.facilitator, accounts.settler, accounts.feePayer],
  log: pino({ level: 'error' }, process.stderr),
});
console.log(chain.rpcUrl);
process.stdin.resume();
await once(process.stdin, 'end');
await chain.close();
