/**
 * The first start of the embedded chain: puts the contracts in place and gives every wallet its test money.
 */
import {
  type Address,
  concatHex,
  domainSeparator,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  maxUint256,
  numberToHex,
} from 'viem';
import {
  BASE_SEPOLIA_ID,
  BATCH_SETTLEMENT_ADDRESS,
  CREATE2_DEPLOYER_ADDRESS,
  DEPOSIT_COLLECTOR_ADDRESS,
  localBatchSettlement,
  localChannelReserve,
  localDepositCollector,
  localUsdc,
  PATH_USD_ADDRESS,
  PERMIT2_ADDRESS,
  USDC_ADDRESS,
  x402Permit2Proxies,
} from './contracts/index.ts';
import type { JsonRpcSocket } from './json-rpc-socket.ts';
import { leftPool } from './pool.ts';
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
  await chain.request('anvil_setCode', [BATCH_SETTLEMENT_ADDRESS, localBatchSettlement.runtime]);
  await chain.request('anvil_setCode', [DEPOSIT_COLLECTOR_ADDRESS, localDepositCollector.runtime]);
  await signPermitsForBaseSepolia(chain);

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

/**
 * Permit2 takes what is signed for the chain that it is on. Its code holds the chain id of its deployment, and what is
 * signed there (Permit2's EIP712.sol: `_CACHED_CHAIN_ID`, `_CACHED_DOMAIN_SEPARATOR`); both are 0 in Tempo's genesis.
 */
async function signPermitsForBaseSepolia(chain: JsonRpcSocket): Promise<void> {
  const code = await chain.request<Hex>('eth_getCode', [PERMIT2_ADDRESS, 'latest']);
  const id = await chain.request<Hex>('eth_chainId', []);
  const separator = domainSeparator({
    domain: { name: 'Permit2', chainId: BASE_SEPOLIA_ID, verifyingContract: PERMIT2_ADDRESS },
  });
  const unset = '0'.repeat(64);
  // CHAINID, PUSH32 of the cached id, SUB, PUSH2 and JUMPI to where it is made anew; else PUSH32 of the cached one.
  const cached = new RegExp(`467f${unset}(0361....57)7f${unset}`);
  const signed = code.replace(cached, (_, jump) => `467f${word(id)}${jump}7f${word(separator)}`);
  if (signed === code) throw new Error('Permit2 is not as it is known');
  await chain.request('anvil_setCode', [PERMIT2_ADDRESS, signed]);
}

function word(value: Hex): string {
  return numberToHex(BigInt(value), { size: 32 }).slice(2);
}

/** The chain that payments in the token of this chain are signed for. Chains of former versions sign for their own. */
export async function signedChainId(chain: Pick<JsonRpcSocket, 'call'>, chainId: number): Promise<number> {
  const data = encodeFunctionData({ abi: localUsdc.abi, functionName: 'DOMAIN_SEPARATOR' });
  const answer = await chain.call('eth_call', [{ to: USDC_ADDRESS, data }, 'latest']);
  const domain = { name: 'USDC', version: '2', verifyingContract: USDC_ADDRESS };
  const ofBaseSepolia = domainSeparator({ domain: { ...domain, chainId: BASE_SEPOLIA_ID } });
  return 'result' in answer && answer.result === ofBaseSepolia ? BASE_SEPOLIA_ID : chainId;
}

async function as(chain: JsonRpcSocket, account: Address, work: () => Promise<void>): Promise<void> {
  await chain.request('anvil_impersonateAccount', [account]);
  await work();
  await chain.request('anvil_stopImpersonatingAccount', [account]);
}

async function send(chain: JsonRpcSocket, from: Address, to: Address, data: Hex): Promise<void> {
  const hash = await chain.request<Hex>('eth_sendTransaction', [{ from, to, data, gas: '0x1312d00', gasPrice: '0x0' }]);
  await leftPool(chain, hash);
  const receipt = await chain.request<{ status: Hex } | null>('eth_getTransactionReceipt', [hash]);
  if (receipt?.status !== '0x1') throw new Error(`a transaction of the first start failed: to ${to}`);
}
