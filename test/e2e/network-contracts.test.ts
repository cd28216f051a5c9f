/** The stand-in contracts on a real chain: what they allow and, above all, what they refuse. */
import { spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type Abi,
  type Address,
  decodeErrorResult,
  decodeFunctionResult,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  maxUint256,
  pad,
  serializeSignature,
} from 'viem';
import { generatePrivateKey, privateKeyToAccount, sign } from 'viem/accounts';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Anvil, findConfinement, startAnvil } from '../../host/local-network/anvil.ts';
import {
  BASE_SEPOLIA_ID,
  localChannelReserve,
  localUsdc,
  PATH_USD_ADDRESS,
  USDC_ADDRESS,
} from '../../host/local-network/contracts/index.ts';
import { setUpChain } from '../../host/local-network/genesis.ts';
import type { RpcError } from '../../host/local-network/json-rpc-socket.ts';
import { allowDeposit, RESERVE_ADDRESS } from '../../host/local-network/session-reserve.ts';
import { loadNetworkKeys, type NetworkKeys } from '../../host/payments/network/keys.ts';

const CHAIN_ID = 1337;
let folder: string;
let chain: Anvil;
let keys: NetworkKeys;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turnpike-contracts-'));
  keys = await loadNetworkKeys(folder);
  chain = await startAnvil({
    chainId: CHAIN_ID,
    socketPath: join(folder, 'anvil.sock'),
    pidFile: join(folder, 'anvil.pid'),
    stateFile: undefined,
    confinement: findConfinement(),
  });
  const { facilitator, settler, feePayer } = keys.accounts;
  await setUpChain(chain.rpc, { wallets: keys.wallets, senders: [facilitator, settler, feePayer] });
});

afterAll(async () => {
  chain?.kill();
  await chain?.exited;
  await rm(folder, { recursive: true, force: true });
});

/** Runs a call in a block. Answers undefined, or the reason of the revert: the error's name or text. */
async function transact(from: Address, to: Address, data: Hex): Promise<string | undefined> {
  const tried = await chain.rpc.call('eth_call', [{ from, to, data }, 'latest']);
  if ('error' in tried) return reason(tried.error);
  await chain.rpc.request('anvil_impersonateAccount', [from]);
  const hash = await chain.rpc.request<Hex>('eth_sendTransaction', [
    { from, to, data, gas: '0x989680', gasPrice: '0x0' },
  ]);
  await chain.rpc.request('anvil_stopImpersonatingAccount', [from]);
  for (;;) {
    const receipt = await chain.rpc.request<{ status: Hex } | null>('eth_getTransactionReceipt', [hash]);
    if (receipt) return receipt.status === '0x1' ? undefined : 'reverted';
  }
}

function reason(error: RpcError): string {
  const data = typeof error.data === 'string' ? (error.data as Hex) : undefined;
  if (data !== undefined && data.length > 2) {
    try {
      const { errorName, args } = decodeErrorResult({ abi: localChannelReserve.abi as Abi, data });
      return errorName === 'Error' ? String(args?.[0]) : errorName;
    } catch {
      // An error that the contract does not declare: the chain's own words.
    }
  }
  return error.message;
}

async function balance(token: Address, owner: Address): Promise<bigint> {
  const data = encodeFunctionData({ abi: erc20Abi, functionName: 'balanceOf', args: [owner] });
  return BigInt(await chain.rpc.request<Hex>('eth_call', [{ to: token, data }, 'latest']));
}

async function now(): Promise<bigint> {
  return BigInt((await chain.rpc.request<{ timestamp: Hex }>('eth_getBlockByNumber', ['latest', false])).timestamp);
}

describe('USDC stand-in', () => {
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const domain = { name: 'USDC', version: '2', chainId: BASE_SEPOLIA_ID, verifyingContract: USDC_ADDRESS };
  const fields = [
    'from:address',
    'to:address',
    'value:uint256',
    'validAfter:uint256',
    'validBefore:uint256',
    'nonce:bytes32',
  ];
  const struct = fields.map((field) => ({ name: field.split(':')[0]!, type: field.split(':')[1]! }));

  async function authorization(
    change: Partial<{ value: bigint; validAfter: bigint; validBefore: bigint; to: Address; nonce: Hex }> = {},
    type = 'TransferWithAuthorization',
  ) {
    const payer = privateKeyToAccount(keys.wallets[0]!.privateKey);
    const message = {
      from: payer.address,
      to: payee,
      value: 7n,
      validAfter: 0n,
      validBefore: (await now()) + 60n,
      nonce: generatePrivateKey(),
      ...change,
    };
    const signature = await payer.signTypedData({
      domain,
      types: { [type]: struct },
      primaryType: type,
      message,
    } as never);
    return { message, signature };
  }

  function data(
    { message, signature }: Awaited<ReturnType<typeof authorization>>,
    functionName: 'transferWithAuthorization' | 'receiveWithAuthorization' = 'transferWithAuthorization',
  ): Hex {
    const { from, to, value, validAfter, validBefore, nonce } = message;
    return encodeFunctionData({
      abi: localUsdc.abi,
      functionName,
      args: [from, to, value, validAfter, validBefore, nonce, signature],
    } as never);
  }

  const relayer = () => keys.wallets[3]!.address;

  test('moves exactly the signed amount, once', async () => {
    const signed = await authorization();
    const before = await balance(USDC_ADDRESS, payee);
    expect(await transact(relayer(), USDC_ADDRESS, data(signed))).toBeUndefined();
    expect(await balance(USDC_ADDRESS, payee)).toBe(before + 7n);
    expect(await transact(relayer(), USDC_ADDRESS, data(signed))).toContain('used or canceled');
  });

  test('refuses what was changed after signing', async () => {
    const signed = await authorization();
    for (const change of [{ value: 8n }, { to: relayer() }, { validBefore: maxUint256 }, { nonce: pad('0x1') }]) {
      const forged = { ...signed, message: { ...signed.message, ...change } };
      expect(await transact(relayer(), USDC_ADDRESS, data(forged))).toContain('invalid signature');
    }
  });

  test('refuses the malleable twin of a signature', async () => {
    const signed = await authorization();
    const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
    const s = BigInt(`0x${signed.signature.slice(66, 130)}`);
    const flipped = signed.signature.endsWith('1b') ? '1c' : '1b';
    const twin = `${signed.signature.slice(0, 66)}${(order - s).toString(16).padStart(64, '0')}${flipped}` as Hex;
    expect(await transact(relayer(), USDC_ADDRESS, data({ ...signed, signature: twin }))).toContain(
      'invalid signature',
    );
  });

  test('keeps to the window of time', async () => {
    const time = await now();
    expect(await transact(relayer(), USDC_ADDRESS, data(await authorization({ validBefore: time - 1n })))).toContain(
      'expired',
    );
    expect(await transact(relayer(), USDC_ADDRESS, data(await authorization({ validAfter: time + 99n })))).toContain(
      'not yet valid',
    );
  });

  test('refuses more than the balance', async () => {
    const much = await authorization({ value: 10n ** 18n });
    expect(await transact(relayer(), USDC_ADDRESS, data(much))).toContain('exceeds balance');
  });

  test('receiveWithAuthorization is for the payee only', async () => {
    const signed = await authorization({}, 'ReceiveWithAuthorization');
    expect(await transact(relayer(), USDC_ADDRESS, data(signed, 'receiveWithAuthorization'))).toContain(
      'must be the payee',
    );
    expect(await transact(payee, USDC_ADDRESS, data(signed, 'receiveWithAuthorization'))).toBeUndefined();
  });

  test('nobody mints', async () => {
    const mint = encodeFunctionData({ abi: localUsdc.abi, functionName: 'mint', args: [relayer(), 1n] });
    expect(await transact(relayer(), USDC_ADDRESS, mint)).toContain('not the minter');
  });

  test('a permit allows once, what it says', async () => {
    const owner = privateKeyToAccount(keys.wallets[1]!.privateKey);
    const spender = relayer();
    const deadline = (await now()) + 60n;
    const types = {
      Permit: ['owner:address', 'spender:address', 'value:uint256', 'nonce:uint256', 'deadline:uint256'].map(
        (field) => ({
          name: field.split(':')[0]!,
          type: field.split(':')[1]!,
        }),
      ),
    };
    const message = { owner: owner.address, spender, value: 5n, nonce: 0n, deadline };
    const signature = await owner.signTypedData({ domain, types, primaryType: 'Permit', message } as never);
    const permit = encodeFunctionData({
      abi: localUsdc.abi,
      functionName: 'permit',
      args: [owner.address, spender, 5n, deadline, signature],
    });
    expect(await transact(spender, USDC_ADDRESS, permit)).toBeUndefined();
    expect(await transact(spender, USDC_ADDRESS, permit)).toContain('invalid signature');
    const take = (value: bigint) =>
      encodeFunctionData({ abi: erc20Abi, functionName: 'transferFrom', args: [owner.address, spender, value] });
    expect(await transact(spender, USDC_ADDRESS, take(6n))).toContain('exceeds allowance');
    expect(await transact(spender, USDC_ADDRESS, take(5n))).toBeUndefined();
    expect(await transact(spender, USDC_ADDRESS, take(1n))).toContain('exceeds allowance');
  });
});

describe('session reserve stand-in', () => {
  const abi = localChannelReserve.abi;
  const none = pad('0x0', { size: 20 });
  const payerKey = () => keys.wallets[2]!.privateKey;
  const seller = () => keys.accounts.settler.address;
  const stranger = () => keys.wallets[4]!.address;
  let channel: Record<'payer' | 'payee' | 'operator' | 'token' | 'authorizedSigner', Address> &
    Record<'salt' | 'expiringNonceHash', Hex>;
  let id: Hex;

  const call = (functionName: string, args: unknown[]) => encodeFunctionData({ abi, functionName, args } as never);
  const act = (from: Address, functionName: string, args: unknown[]) =>
    transact(from, RESERVE_ADDRESS, call(functionName, args));

  async function read<Result>(functionName: string, args: unknown[]): Promise<Result> {
    const data = await chain.rpc.request<Hex>('eth_call', [
      { to: RESERVE_ADDRESS, data: call(functionName, args) },
      'latest',
    ]);
    return decodeFunctionResult({ abi, functionName, data } as never) as Result;
  }

  async function voucher(amount: bigint, privateKey: Hex = payerKey()): Promise<Hex> {
    const hash = await read<Hex>('getVoucherDigest', [id, amount]);
    return serializeSignature(await sign({ hash, privateKey }));
  }

  beforeEach(async () => {
    const payer = privateKeyToAccount(payerKey()).address;
    const openingHash = await chain.rpc.request<Hex>('eth_getStorageAt', [RESERVE_ADDRESS, pad('0x0'), 'latest']);
    channel = {
      payer,
      payee: seller(),
      operator: none,
      token: PATH_USD_ADDRESS,
      salt: generatePrivateKey(),
      authorizedSigner: none,
      expiringNonceHash: openingHash,
    };
    await allowDeposit(chain.rpc, { payer, token: PATH_USD_ADDRESS });
    id = await read<Hex>('computeChannelId', Object.values(channel));
    const open = [channel.payee, channel.operator, channel.token, 1_000n, channel.salt, channel.authorizedSigner];
    expect(await act(payer, 'open', open)).toBeUndefined();
    expect(await act(payer, 'open', open)).toBe('ChannelAlreadyExists');
  });

  test('the allowance of the reserve leaves the payer’s nonce alone', async () => {
    const fresh = privateKeyToAccount(generatePrivateKey()).address;
    await allowDeposit(chain.rpc, { payer: fresh, token: PATH_USD_ADDRESS });
    expect(await chain.rpc.request('eth_getTransactionCount', [fresh, 'latest'])).toBe('0x0');
  });

  test('settles by rising vouchers of the payer, for the seller only', async () => {
    const before = await balance(PATH_USD_ADDRESS, seller());
    expect(await act(stranger(), 'settle', [channel, 300n, await voucher(300n)])).toBe('NotPayeeOrOperator');
    expect(await act(seller(), 'settle', [channel, 300n, await voucher(300n, keys.wallets[4]!.privateKey)])).toBe(
      'InvalidSignature',
    );
    expect(await act(seller(), 'settle', [channel, 301n, await voucher(300n)])).toBe('InvalidSignature');
    expect(await act(seller(), 'settle', [channel, 1_001n, await voucher(1_001n)])).toBe('AmountExceedsDeposit');
    expect(await act(seller(), 'settle', [channel, 300n, await voucher(300n)])).toBeUndefined();
    expect(await act(seller(), 'settle', [channel, 300n, await voucher(300n)])).toBe('AmountNotIncreasing');
    expect(await act(seller(), 'settle', [channel, 200n, await voucher(200n)])).toBe('AmountNotIncreasing');
    expect(await balance(PATH_USD_ADDRESS, seller())).toBe(before + 300n);
  });

  test('a close captures what was used, and gives the rest back; then the channel is gone', async () => {
    const before = [await balance(PATH_USD_ADDRESS, seller()), await balance(PATH_USD_ADDRESS, channel.payer)];
    expect(await act(seller(), 'close', [channel, 500n, 501n, await voucher(500n)])).toBe('CaptureAmountInvalid');
    expect(await act(stranger(), 'close', [channel, 500n, 400n, await voucher(500n)])).toBe('NotPayeeOrOperator');
    expect(await act(seller(), 'close', [channel, 500n, 400n, await voucher(500n)])).toBeUndefined();
    expect(await balance(PATH_USD_ADDRESS, seller())).toBe(before[0]! + 400n);
    expect(await balance(PATH_USD_ADDRESS, channel.payer)).toBe(before[1]! + 600n);
    expect(await act(seller(), 'close', [channel, 500n, 400n, await voucher(500n)])).toBe('ChannelNotFound');
    const open = [channel.payee, channel.operator, channel.token, 1_000n, channel.salt, channel.authorizedSigner];
    expect(await act(channel.payer, 'open', open)).toBe('ChannelAlreadyExists');
  });

  test('a top-up raises the deposit, for the payer only', async () => {
    expect(await act(stranger(), 'topUp', [channel, 5n])).toBe('NotPayer');
    expect(await act(channel.payer, 'topUp', [channel, 500n])).toBeUndefined();
    expect(await act(seller(), 'settle', [channel, 1_500n, await voucher(1_500n)])).toBeUndefined();
  });

  test('an abandoned deposit comes back to the payer after the grace period, and not before', async () => {
    const before = await balance(PATH_USD_ADDRESS, channel.payer);
    expect(await act(seller(), 'settle', [channel, 100n, await voucher(100n)])).toBeUndefined();
    expect(await act(channel.payer, 'withdraw', [channel])).toBe('CloseNotReady');
    expect(await act(stranger(), 'requestClose', [channel])).toBe('NotPayer');
    expect(await act(channel.payer, 'requestClose', [channel])).toBeUndefined();
    expect(await act(channel.payer, 'withdraw', [channel])).toBe('CloseNotReady');
    await chain.rpc.request('evm_increaseTime', [901]);
    await chain.rpc.request('evm_mine');
    expect(await act(channel.payer, 'withdraw', [channel])).toBeUndefined();
    expect(await balance(PATH_USD_ADDRESS, channel.payer)).toBe(before + 900n);
  });
});

test('the committed bytecode is what the sources compile to', () => {
  const script = fileURLToPath(new URL('../../scripts/compile-contracts.mjs', import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, [script, '--check'], { encoding: 'utf8' });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
});
