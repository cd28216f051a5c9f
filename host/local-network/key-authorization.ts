/**
 * Makes the chain take key authorizations as Tempo does since TIP-1053: MPP's subscriptions sign a `witness`, and
 * anvil 1.7.1 cannot decode a transaction that carries one. What the wallet has signed is checked here and given to
 * the keychain in the wallet's name; the chain itself enforces the key's limits from then on. The transaction's own
 * calls do not happen, and it has no receipt: whoever sent it asks the keychain for the key.
 */
import { KeyAuthorization, SignatureEnvelope } from 'ox/tempo';
import { type Address, encodeFunctionData, type Hex, isAddressEqual, parseAbi } from 'viem';
import { Addresses, Transaction } from 'viem/tempo';
import type { JsonRpcSocket, RpcAnswer } from './json-rpc-socket.ts';
import { leftPool } from './pool.ts';

/** The one of T3 and T4 (Tempo's IAccountKeychain). */
const KEYCHAIN = parseAbi([
  'struct TokenLimit { address token; uint256 amount; uint64 period; }',
  'struct SelectorRule { bytes4 selector; address[] recipients; }',
  'struct CallScope { address target; SelectorRule[] selectorRules; }',
  'struct KeyRestrictions { uint64 expiry; bool enforceLimits; TokenLimit[] limits; bool allowAnyCalls; CallScope[] allowedCalls; }',
  'function authorizeKey(address keyId, uint8 signatureType, KeyRestrictions config)',
]);
const KINDS = ['secp256k1', 'p256', 'webAuthn'];

/** A key that a wallet has signed for. */
export interface WitnessedKey {
  wallet: Address;
  /** The call of the keychain that authorizes it. */
  call: Hex;
}

/** @param raw a transaction that the chain cannot decode: anything at all. @returns undefined for every other one */
export function witnessedKeyOf(raw: string, chainId: number): WitnessedKey | undefined {
  if (!/^0x76[0-9a-fA-F]*$/.test(raw)) return undefined;
  try {
    const { from, keyAuthorization } = Transaction.deserialize(
      raw as Parameters<typeof Transaction.deserialize>[0],
    ) as { from?: Address; keyAuthorization?: KeyAuthorization.Signed };
    if (!from || keyAuthorization?.witness === undefined) return undefined;
    const payload = KeyAuthorization.getSignPayload(keyAuthorization);
    const { signature } = keyAuthorization;
    const wallet = SignatureEnvelope.extractAddress({ payload, signature });
    const signed = SignatureEnvelope.verify(signature, { address: wallet, payload });
    if (!signed || !isAddressEqual(wallet, from) || keyAuthorization.chainId !== BigInt(chainId)) return undefined;
    return { wallet, call: callOf(keyAuthorization) };
  } catch {
    // Not a transaction at all: the chain's own refusal says so.
    return undefined;
  }
}

function callOf({ address, type, expiry, limits, scopes }: KeyAuthorization.Signed): Hex {
  const rulesOf = (target: Address) =>
    (scopes ?? [])
      .filter((scope) => isAddressEqual(scope.address, target))
      .flatMap(({ selector, recipients }) =>
        selector === undefined ? [] : [{ selector: selector as Hex, recipients: [...(recipients ?? [])] }],
      );
  const targets = [...new Set((scopes ?? []).map((scope) => scope.address))];
  const config = {
    expiry: BigInt(expiry ?? 0),
    enforceLimits: limits !== undefined,
    limits: (limits ?? []).map(({ token, limit, period }) => ({ token, amount: limit, period: BigInt(period ?? 0) })),
    allowAnyCalls: scopes === undefined,
    allowedCalls: targets.map((target) => ({ target, selectorRules: rulesOf(target) })),
  };
  return encodeFunctionData({
    abi: KEYCHAIN,
    functionName: 'authorizeKey',
    args: [address, KINDS.indexOf(type), config],
  });
}

/** Gives the key to the keychain in the wallet's name, and leaves the wallet's nonce as it was. */
export async function authorizeWitnessed(chain: JsonRpcSocket, { wallet, call }: WitnessedKey): Promise<RpcAnswer> {
  const nonce = await chain.request<Hex>('eth_getTransactionCount', [wallet, 'latest']);
  const data = { from: wallet, to: Addresses.accountKeychain, data: call, gas: '0x4c4b40', gasPrice: '0x0' };
  // What the keychain refuses is told as the chain tells it.
  const tried = await chain.call('eth_call', [data, 'latest']);
  if ('error' in tried) return tried;
  await chain.request('anvil_impersonateAccount', [wallet]);
  try {
    const answer = await chain.call('eth_sendTransaction', [data]);
    if ('result' in answer) await leftPool(chain, answer.result as Hex);
    return answer;
  } finally {
    await chain.request('anvil_stopImpersonatingAccount', [wallet]);
    await chain.request('anvil_setNonce', [wallet, nonce]);
  }
}
