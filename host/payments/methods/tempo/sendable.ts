/**
 * What mppx's simulation of a transaction does not look at: that it ends, that its turn has come, that the chain takes
 * so much gas, that this is enough for its signature, and who pays for it (how much: `network-fee.ts`). One that never
 * ends and never comes to its turn would be waited for without end, and a handler would have worked for it.
 */
import type { SignatureEnvelope } from 'ox/tempo';
import { type Address, type Client, type Hex, numberToHex, size } from 'viem';
import { call, getTransactionCount } from 'viem/actions';
import { Actions } from 'viem/tempo';
import { Problem } from '../../../shared/problem.ts';
import { lower, type Share } from '../../terms.ts';

/** Of one transaction, on Tempo since T1. */
const MOST_GAS = 30_000_000n;
/** A payer's clock may be ahead; the network keeps the transaction for so long. */
const CLOCK_MS = 4_000;
/** Its transactions come in any order, and within half a minute: the chain sees to that. */
const EXPIRING = (1n << 256n) - 1n;

export interface SignedTransaction {
  /** Recovered from the signature. */
  from?: Hex;
  gas?: bigint;
  nonce?: number | bigint;
  nonceKey?: bigint;
  /** Seconds since 1970. */
  validAfter?: number;
  /** Seconds since 1970. */
  validBefore?: number;
  maxFeePerGas?: bigint;
  feeToken?: Address;
  /** Null: somebody else is to sign for the fee. */
  feePayerSignature?: unknown;
  calls?: readonly { to?: Address | null }[];
  signature?: SignatureEnvelope.SignatureEnvelope;
}

/** As nodes of Tempo want it for simulations, which carry no signature. */
interface Signer {
  keyType: 'secp256k1' | 'p256' | 'webAuthn';
  /** How many bytes of what a passkey signed stand in the transaction. */
  keyData?: Hex;
  keyId?: Hex;
}

/** A node takes most of the data of a passkey's authenticator for zeros, which cost less. */
const AUTHENTICATOR_BYTES = 37;

/**
 * @param latest until when it may be valid, ms since the Unix epoch
 * @throws Problem `payment_invalid`
 */
export async function assertSendable(client: Client, transaction: SignedTransaction, latest: number): Promise<void> {
  const { from, gas = 0n, nonce = 0, nonceKey = 0n, validAfter = 0, validBefore, feePayerSignature } = transaction;
  if (validBefore === undefined || validBefore * 1000 > latest)
    throw refused('It must end with the challenge (validBefore), at the latest');
  if (validAfter * 1000 > Date.now() + CLOCK_MS) throw refused('It must be valid from now on (validAfter)');
  // A sponsor's signature may be wrong, and its wallet may be empty.
  if (feePayerSignature !== undefined) throw refused('The wallet that pays must pay the network fee, too');
  if (gas > MOST_GAS) throw refused(`The network takes at most ${MOST_GAS} gas`);
  if (nonceKey === EXPIRING || from === undefined) return;
  const next = await nextNonce(client, from, nonceKey);
  if (BigInt(nonce) !== next) throw refused(`The next nonce of the wallet is ${next}`);
}

/**
 * mppx simulates a transaction as if a secp256k1 key had signed it. Other signatures need more gas, and the network takes
 * no transaction that has less. A node that does not know of signers repeats mppx's simulation.
 * @param keyId the access key that signed, if one did
 * @throws Problem `payment_invalid`
 */
export async function assertGasForSigner(client: Client, transaction: SignedTransaction, keyId?: Hex): Promise<void> {
  const { signature, from } = transaction;
  if (!signature || signature.type === 'secp256k1' || signature.type === 'multisig') return;
  const simulated = { ...transaction, account: from, signature: undefined, feePayerSignature: undefined };
  await call(client, { ...simulated, ...signerOf(signature, keyId) } as never).catch((error) => {
    throw new Problem(
      'payment_invalid',
      'The network would not take the transaction with this signature: it may have too little gas for it; sign a new one. Nothing was charged.',
      { cause: error },
    );
  });
}

function signerOf(signature: SignatureEnvelope.SignatureEnvelope, keyId?: Hex): Signer {
  const key = keyId === undefined ? {} : { keyId };
  switch (signature.type) {
    case 'keychain':
      return signerOf(signature.inner, keyId);
    case 'webAuthn': {
      const { authenticatorData, clientDataJSON } = signature.metadata;
      const bytes = size(authenticatorData) + Buffer.byteLength(clientDataJSON) + AUTHENTICATOR_BYTES;
      return { keyType: 'webAuthn', keyData: numberToHex(bytes, { size: 2 }), ...key };
    }
    case 'p256':
      return { keyType: 'p256', ...key };
    default:
      return { keyType: 'secp256k1', ...key };
  }
}

/** The turn of a transaction: of all that have the same one, the chain takes one. */
export function nonceOf(
  client: Client,
  chainId: number,
  { from, nonce = 0, nonceKey = 0n }: SignedTransaction,
): Share[] {
  if (nonceKey === EXPIRING || from === undefined) return [];
  const left = async () => ((await nextNonce(client, from, nonceKey)) === BigInt(nonce) ? 1n : 0n);
  return [{ of: `${chainId} ${lower(from)} nonce ${nonceKey}`, amount: 1n, left }];
}

async function nextNonce(client: Client, account: Hex, nonceKey: bigint): Promise<bigint> {
  try {
    return nonceKey === 0n
      ? BigInt(await getTransactionCount(client, { address: account, blockTag: 'latest' }))
      : await Actions.nonce.getNonce(client as never, { account, nonceKey });
  } catch (cause) {
    throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause });
  }
}

function refused(detail: string): Problem {
  return new Problem('payment_invalid', `${detail}; sign a new transaction. Nothing was charged.`);
}
