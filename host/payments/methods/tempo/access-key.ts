/**
 * Who signed a transaction of Tempo, and whether it may pay. The simulation of a transfer runs in the name of the wallet:
 * it looks neither at signatures nor at the limits of a key of the wallet's keychain (an access key), which the chain
 * enforces only when the transaction is sent. A handler must not work for a payment that cannot happen, nor be told of a
 * payer that has signed nothing.
 */
import { KeyAuthorization, SignatureEnvelope, TxEnvelopeTempo } from 'ox/tempo';
import type { Client, Hex } from 'viem';
import { readContract } from 'viem/actions';
import { Abis, Addresses } from 'viem/tempo';
import { formatUsd, micro } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import { lower } from '../../terms.ts';

type Envelope = ReturnType<typeof TxEnvelopeTempo.deserialize>;

interface Payment {
  client: Client;
  token: Hex;
  amount: bigint;
}

/** What a key may do, as the chain knows it or a transaction brings it. */
interface KeyLimits {
  /** Seconds since 1970; 0 or undefined: no end. */
  expiry: bigint;
  /** Undefined: no limit. */
  remaining: bigint | undefined;
}

/**
 * @param serialized a signed transaction in its canonical encoding
 * @throws Problem `payment_invalid`
 */
export async function assertSignerMayPay(serialized: Hex, payment: Payment): Promise<void> {
  const envelope = TxEnvelopeTempo.deserialize(serialized as TxEnvelopeTempo.Serialized);
  const { signature } = envelope;
  if (!signature) throw refused('The transaction is not signed.');
  if (signature.type === 'multisig') throw refused('Signatures of several owners are not taken here.');
  if (signature.type !== 'keychain') {
    // Of ECDSA the signer is recovered; of others a public key stands beside the signature.
    if (signature.type !== 'secp256k1') assertSigned(signature, TxEnvelopeTempo.getSignPayload(envelope));
    return;
  }
  const { userAddress, inner, version } = signature;
  const payload = TxEnvelopeTempo.getSignPayload(envelope, version === 'v2' ? { from: userAddress } : {});
  const key = assertSigned(inner, payload);
  const known = (await limitsOnChain(userAddress, key, payment)) ?? limitsBrought(envelope, userAddress, key, payment);
  if (!known) throw refused(`The access key ${key} is none of the wallet ${userAddress}; authorize it first.`);
  if (known.expiry !== 0n && known.expiry * 1000n <= BigInt(Date.now()))
    throw refused(`The access key ${key} has expired.`);
  if (known.remaining !== undefined && known.remaining < payment.amount)
    throw refused(
      `The access key ${key} may spend ${formatUsd(micro(known.remaining))} of the ${formatUsd(micro(payment.amount))} USD needed; raise its limit, or pay with the wallet itself.`,
    );
}

/** @returns who signed */
function assertSigned(signature: SignatureEnvelope.SignatureEnvelope, payload: Hex): Hex {
  if (signature.type === 'secp256k1') return lower(SignatureEnvelope.extractAddress({ payload, signature }));
  if (signature.type === 'p256' || signature.type === 'webAuthn') {
    const address = SignatureEnvelope.extractAddress({ payload, signature });
    if (SignatureEnvelope.verify(signature, { payload, address })) return lower(address);
  }
  throw refused('The signature of the transaction is not valid.');
}

/** @returns undefined for a key that the wallet has not authorized */
async function limitsOnChain(wallet: Hex, key: Hex, { client, token }: Payment): Promise<KeyLimits | undefined> {
  const ask = <Answer>(functionName: string, args: unknown[]) =>
    readContract(client, {
      address: Addresses.accountKeychain,
      abi: Abis.accountKeychain,
      functionName,
      args,
    } as never).catch((error) => {
      throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause: error });
    }) as Promise<Answer>;
  const [known, [remaining]] = await Promise.all([
    ask<{ keyId: Hex; expiry: bigint; enforceLimits: boolean; isRevoked: boolean }>('getKey', [wallet, key]),
    ask<[bigint, bigint]>('getRemainingLimitWithPeriod', [wallet, key, token]),
  ]);
  if (known.isRevoked) throw refused(`The wallet has revoked the access key ${key}.`);
  if (lower(known.keyId) !== key) return undefined;
  return { expiry: known.expiry, remaining: known.enforceLimits ? remaining : undefined };
}

/** Of a key that the transaction itself makes known to the chain, if the wallet has signed that. */
function limitsBrought({ keyAuthorization }: Envelope, wallet: Hex, key: Hex, { token }: Payment) {
  if (!keyAuthorization?.signature || lower(keyAuthorization.address) !== key) return undefined;
  const { expiry, limits, signature } = keyAuthorization;
  if (assertSigned(signature, KeyAuthorization.getSignPayload(keyAuthorization)) !== lower(wallet)) return undefined;
  const limit = limits?.find((one) => lower(one.token) === lower(token))?.limit ?? 0n;
  return { expiry: BigInt(expiry ?? 0), remaining: limits === undefined ? undefined : BigInt(limit) };
}

function refused(detail: string): Problem {
  return new Problem('payment_invalid', `${detail} Nothing was charged.`);
}
