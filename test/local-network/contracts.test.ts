import * as x402 from '@x402/evm';
import { getCreate2Address, toEventSelector, toFunctionSelector } from 'viem';
import { Abis, Addresses } from 'viem/tempo';
import { describe, expect, test } from 'vitest';
import {
  BATCH_SETTLEMENT_ADDRESS,
  CREATE2_DEPLOYER_ADDRESS,
  DEPOSIT_COLLECTOR_ADDRESS,
  localBatchSettlement,
  localChannelReserve,
  localUsdc,
  x402Permit2Proxies,
} from '../../host/local-network/contracts/index.ts';
import { RESERVE_ADDRESS } from '../../host/local-network/session-reserve.ts';
import { BATCH_ABI } from '../../host/payments/methods/x402/batch/chain.ts';

type Item = { type: string; name?: string };

function signatures(abi: readonly Item[]): string[] {
  return abi
    .map((item) => {
      if (item.type === 'function') return `function ${item.name} ${toFunctionSelector(item as never)}`;
      if (item.type === 'event') return `event ${item.name} ${toEventSelector(item as never)}`;
      return `${item.type} ${item.name}`;
    })
    .sort();
}

describe('the stand-in for the session precompile', () => {
  test('has the functions, events and errors of TIP-1034, save storage credits and the hash check', () => {
    const missing = signatures(Abis.tip20ChannelReserve).filter(
      (one) => !signatures(localChannelReserve.abi).includes(one),
    );
    expect(missing.map((one) => one.split(' ')[1])).toEqual(['ExpiringNonceHashNotSet', 'storageCredits']);
  });

  test('has only one more: its error for tokens that refuse', () => {
    const extra = signatures(localChannelReserve.abi).filter(
      (one) => !signatures(Abis.tip20ChannelReserve).includes(one),
    );
    expect(extra).toEqual(['error TransferFailed']);
    expect(RESERVE_ADDRESS).toBe(Addresses.tip20ChannelReserve);
  });
});

test('the stand-in for USDC has the signatures that x402 clients and facilitators call', () => {
  const selectors = signatures(localUsdc.abi).map((one) => one.split(' ')[2]);
  // From Circle's FiatTokenV2_2: transferWithAuthorization (v, r, s) and (bytes), receiveWithAuthorization, permit.
  for (const selector of ['0xe3ee160e', '0xcf092995', '0xef55bec6', '0xd505accf', '0x3644e515', '0xe94a0102']) {
    expect(selectors).toContain(selector);
  }
});

test('the stand-ins for batch-settlement are where @x402/evm looks for them, with all that the host calls', () => {
  expect(BATCH_SETTLEMENT_ADDRESS).toBe(x402.BATCH_SETTLEMENT_ADDRESS);
  expect(DEPOSIT_COLLECTOR_ADDRESS).toBe(x402.ERC3009_DEPOSIT_COLLECTOR_ADDRESS);
  expect(signatures(localBatchSettlement.abi)).toEqual(expect.arrayContaining(signatures(BATCH_ABI)));
});

test.each(Object.entries(x402Permit2Proxies))('the %s proxy is byte for byte the public one', (_, proxy) => {
  const address = getCreate2Address({
    from: CREATE2_DEPLOYER_ADDRESS,
    salt: proxy.salt,
    bytecode: proxy.initCode,
  });
  expect(address).toBe(proxy.address);
});
