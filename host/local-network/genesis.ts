/**
 * The first start of the embedded chain: puts the contracts in place and gives every wallet its test money.
 */
import { type Address, concatHex, encodeFunctionData, erc20Abi, type Hex, maxUint256 } from 'viem';
import {
  CREATE2_DEPLOYER_ADDRESS,
  localChannelReserve,
  localUsdc,
  PATH_USD_ADDRESS,
  PERMIT2_ADDRESS,
  USDC_ADDRESS,
  x402Permit2Proxies,
} from './contracts/index.ts';
import type { JsonRpcSocket } from './json-rpc-socket.ts';
import { RESERVE_ADDRESS } from './session-reserve.ts';

/** Test money per wallet and token: 10,000 USD, in micro-USD. */
export const INITIAL_BALANCE = 10_000_000_000n;

/** Fees are zero, yet a Tempo account must hold some fee token to send; the host's own accounts get 10 USD. */
const HOST_BALANCE = 10_000_000n;

/** Accounts that receive test money at the first start. */
export interface Funded {
  /** For trying and testing: much of every token. */
  wallets: readonly { address: Address }[];
  /** Accounts of the host that only send: a little of the fee token. */
  senders: readonly { address: Address }[];
}

/** Sets up a chain that has nothing yet. */
export async function setUpChain(chain: JsonRpcSocket, { wallets, senders }: Funded): Promise<void> {
  // The first block is dated 1970, and mppx simulates with `validAfter` above 1: there has to be a block of today.
  await chain.request('evm_mine');
  await chain.request('anvil_setCode', [RESERVE_ADDRESS, localChannelReserve.runtime]);
  await chain.request('anvil_setCode', [USDC_ADDRESS, localUsdc.runtime]);

  const [bank] = await chain.request<Address[]>('eth_accounts');
  if (bank === undefined) throw new Error('anvil has no account of its own');
  const grants: [Address, bigint][] = [
    ...wallets.map(({ address }): [Address, bigint] => [address, INITIAL_BALANCE]),
    ...senders.map(({ address }): [Address, bigint] => [address, HOST_BALANCE]),
  ];
  for (const [to, amount] of grants) {
    await send(
      chain,
      bank,
      PATH_USD_ADDRESS,
      encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args: [to, amount] }),
    );
  }
  await as(chain, USDC_ADDRESS, async () => {
    for (const { address } of wallets) {
      const data = encodeFunctionData({ abi: localUsdc.abi, functionName: 'mint', args: [address, INITIAL_BALANCE] });
      await send(chain, USDC_ADDRESS, USDC_ADDRESS, data);
    }
  });
  for (const { address } of wallets) {
    const data = encodeFunctionData({ abi: erc20Abi, functionName: 'approve', args: [PERMIT2_ADDRESS, maxUint256] });
    await as(chain, address, () => send(chain, address, USDC_ADDRESS, data));
    await chain.request('anvil_setNonce', [address, '0x0']);
  }
  for (const proxy of Object.values(x402Permit2Proxies)) {
    await send(chain, bank, CREATE2_DEPLOYER_ADDRESS, concatHex([proxy.salt, proxy.initCode]));
    const code = await chain.request<Hex>('eth_getCode', [proxy.address, 'latest']);
    if (code === '0x') throw new Error(`no contract at ${proxy.address}`);
  }
}

async function as(chain: JsonRpcSocket, account: Address, work: () => Promise<void>): Promise<void> {
  await chain.request('anvil_impersonateAccount', [account]);
  await work();
  await chain.request('anvil_stopImpersonatingAccount', [account]);
}

async function send(chain: JsonRpcSocket, from: Address, to: Address, data: Hex): Promise<void> {
  const hash = await chain.request<Hex>('eth_sendTransaction', [{ from, to, data, gas: '0x1312d00', gasPrice: '0x0' }]);
  for (let attempt = 0; attempt < 500; attempt++) {
    const receipt = await chain.request<{ status: Hex } | null>('eth_getTransactionReceipt', [hash]);
    if (receipt?.status === '0x1') return;
    if (receipt) throw new Error(`a transaction of the first start failed: to ${to}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error(`a transaction of the first start was not mined: to ${to}`);
}
