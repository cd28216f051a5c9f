/**
 * Who signed a transaction of Tempo, and whether it may pay. The simulation of a transfer runs in the name of the wallet:
 * it looks neither at signatures nor at what a key of the wallet's keychain (an access key) may do, which the chain
 * enforces only when the transaction is sent. A handler must not work for a payment that cannot happen, nor be told of a
 * payer that has signed nothing.
 */
import { KeyAuthorization, SignatureEnvelope, TxEnvelopeTempo } from 'ox/tempo';
import type { Client, Hex } from 'viem';
import { readContract } from 'viem/actions';
import { Abis, Addresses } from 'viem/tempo';
import { formatUsd, micro } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import { lower, type Share } from '../../terms.ts';
import { type CallScope, flawOf, type KeyRules, rulesOf } from './key-authorization.ts';

type Envelope = ReturnType<typeof TxEnvelopeTempo.deserialize>;
type Call = NonNullable<Envelope['calls']>[number];

interface Payment {
  client: Client;
  chainId: number;
  token: Hex;
  amount: bigint;
}

/** As the keychain numbers them. */
const KINDS = ['secp256k1', 'p256', 'webAuthn'] as const;
/** Characters of the selector, and of an address as the first argument after it, with the 0x. */
const SELECTOR_LENGTH = 10;
const FIRST_ARGUMENT_LENGTH = SELECTOR_LENGTH + 64;

/**
 * @param serialized a signed transaction in its canonical encoding
 * @returns until when it can be sent, ms since the Unix epoch, and the access key that signed, if one did, with what of it
 * other payments use up
 * @throws Problem `payment_invalid`
 */
export async function assertSignerMayPay(
  serialized: Hex,
  payment: Payment,
): Promise<{ until: number; key?: Hex; shares: Share[] }> {
  const envelope = TxEnvelopeTempo.deserialize(serialized as TxEnvelopeTempo.Serialized);
  const { signature, keyAuthorization, calls } = envelope;
  if (!signature) throw refused('The transaction is not signed.');
  if (signature.type === 'multisig') throw refused('Signatures of several owners are not taken here.');
  if (signature.type !== 'keychain') {
    // Of ECDSA the signer is recovered; of others a public key stands beside the signature.
    if (signature.type !== 'secp256k1') assertSigned(signature, TxEnvelopeTempo.getSignPayload(envelope));
    // The chain refuses the whole transaction for an authorization that does not hold.
    if (keyAuthorization) throw refused('A payment authorizes no access key; authorize it by itself.');
    return { until: Number.POSITIVE_INFINITY, shares: [] };
  }
  const { userAddress, inner, version } = signature;
  // The first version does not bind the wallet, and the chain takes it no more.
  if (version !== 'v2') throw refused('The signature of the access key is of a version that the network refuses.');
  const key = assertSigned(inner, TxEnvelopeTempo.getSignPayload(envelope, { from: userAddress }));
  const known = await rulesOnChain(userAddress, key, payment);
  if (known && keyAuthorization) throw refused(`The access key ${key} is authorized already; send it without that.`);
  const rules = known ?? rulesBrought(envelope, userAddress, key, payment);
  if (!rules) throw refused(`The access key ${key} is none of the wallet ${userAddress}; authorize it first.`);
  if (rules.kind !== inner.type) throw refused(`The access key ${key} signs as another kind of key.`);
  const until = rules.expiry === 0n ? Number.POSITIVE_INFINITY : Number(rules.expiry) * 1000;
  if (until <= Date.now()) throw refused(`The access key ${key} has expired.`);
  if (!calls.every((call) => isInScope(call, rules.scopes)))
    throw refused(`The access key ${key} may not make this transfer; widen its calls, or pay with the wallet itself.`);
  if (rules.remaining !== undefined && rules.remaining < payment.amount)
    throw refused(
      `The access key ${key} may spend ${formatUsd(micro(rules.remaining))} of the ${formatUsd(micro(payment.amount))} USD needed; raise its limit, or pay with the wallet itself.`,
    );
  return { until, key, shares: sharesOf(userAddress, key, rules, known !== undefined, payment) };
}

/** The limit of a key that the chain knows; of the transactions that would make it known, the chain takes one. */
function sharesOf(wallet: Hex, key: Hex, rules: KeyRules, isKnown: boolean, payment: Payment): Share[] {
  const of = `${payment.chainId} ${lower(wallet)} ${key}`;
  const known = () => rulesOnChain(wallet, key, payment);
  if (!isKnown) return [{ of, amount: 1n, left: async () => ((await known()) ? 0n : 1n) }];
  if (rules.remaining === undefined) return [];
  const left = async () => (await known())?.remaining ?? 0n;
  return [
    { of: `${of} ${lower(payment.token)}`, amount: payment.amount, holds: `The access key ${key} may spend`, left },
  ];
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

/** Of a key that the transaction itself makes known to the chain, if the wallet has signed that. */
function rulesBrought({ keyAuthorization }: Envelope, wallet: Hex, key: Hex, payment: Payment): KeyRules | undefined {
  if (!keyAuthorization?.signature || lower(keyAuthorization.address) !== key) return undefined;
  const signer = assertSigned(keyAuthorization.signature, KeyAuthorization.getSignPayload(keyAuthorization));
  if (signer !== lower(wallet)) return undefined;
  const flaw = flawOf(keyAuthorization, payment.chainId);
  if (flaw) throw refused(`The authorization of the access key ${key} ${flaw}.`);
  return rulesOf(keyAuthorization, payment.token);
}

/** @returns undefined for a key that the wallet has not authorized */
async function rulesOnChain(wallet: Hex, key: Hex, { client, token }: Payment): Promise<KeyRules | undefined> {
  const ask = <Answer>(functionName: string, args: unknown[]) =>
    readContract(client, {
      address: Addresses.accountKeychain,
      abi: Abis.accountKeychain,
      functionName,
      args,
    } as never).catch((error) => {
      throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause: error });
    }) as Promise<Answer>;
  const [known, [remaining], [isScoped, scopes]] = await Promise.all([
    ask<{ signatureType: number; keyId: Hex; expiry: bigint; enforceLimits: boolean; isRevoked: boolean }>('getKey', [
      wallet,
      key,
    ]),
    ask<[bigint, bigint]>('getRemainingLimitWithPeriod', [wallet, key, token]),
    ask<[boolean, { target: Hex; selectorRules: { selector: Hex; recipients: Hex[] }[] }[]]>('getAllowedCalls', [
      wallet,
      key,
    ]),
  ]);
  if (known.isRevoked) throw refused(`The wallet has revoked the access key ${key}.`);
  if (lower(known.keyId) !== key) return undefined;
  return {
    kind: KINDS[known.signatureType],
    expiry: known.expiry,
    remaining: known.enforceLimits ? remaining : undefined,
    // An expired key may call nothing; that it has expired says more.
    scopes: isScoped ? scopes.flatMap(({ target, selectorRules }) => scopesOf(target, selectorRules)) : undefined,
  };
}

/** A target without rules may be called in every way. */
function scopesOf(address: Hex, rules: { selector: Hex; recipients: Hex[] }[]): CallScope[] {
  return rules.length === 0 ? [{ address }] : rules.map((rule) => ({ address, ...rule }));
}

function isInScope({ to, data = '0x' }: Call, scopes: readonly CallScope[] | undefined): boolean {
  // No access key may create contracts.
  if (!to) return false;
  if (!scopes) return true;
  return scopes.some(({ address, selector, recipients = [] }) => {
    if (lower(address) !== lower(to)) return false;
    if (selector === undefined) return true;
    if (lower(data.slice(0, SELECTOR_LENGTH) as Hex) !== lower(selector as Hex)) return false;
    if (recipients.length === 0) return true;
    const first = lower(data.slice(SELECTOR_LENGTH, FIRST_ARGUMENT_LENGTH) as Hex);
    return recipients.some((recipient) => first === lower(recipient).slice(2).padStart(64, '0'));
  });
}

function refused(detail: string): Problem {
  return new Problem('payment_invalid', `${detail} Nothing was charged.`);
}
