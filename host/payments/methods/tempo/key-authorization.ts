/**
 * An access key that a transaction itself makes known to the chain: whether the chain would take the authorization, and
 * what the key may do then. The rules are those of Tempo's keychain from T1C on (TIP-1011, TIP-1049, TIP-1053); the chain
 * refuses the whole transaction for an authorization that breaks one.
 */
import type { KeyAuthorization } from 'ox/tempo';
import type { Hex } from 'viem';
import { lower } from '../../terms.ts';

/** Calls that a key may make: of a contract, or of one function of it, or with one of some recipients. */
export interface CallScope {
  address: Hex;
  selector?: string | undefined;
  recipients?: readonly Hex[] | undefined;
}

/** What a key may do, as the chain knows it or a transaction brings it. */
export interface KeyRules {
  kind: string | undefined;
  /** Seconds since 1970; 0: no end. */
  expiry: bigint;
  /** Undefined: no limit. */
  remaining: bigint | undefined;
  /** Undefined: any call. */
  scopes: readonly CallScope[] | undefined;
}

const TIP20 = /^0x20c0{21}/;
/** `transfer`, `approve`, `transferWithMemo`: the ones that can be kept to some recipients. */
const WITH_RECIPIENTS = ['0xa9059cbb', '0x095ea7b3', '0x95777d59'];
const ZERO = /^0x0*$/;

/** @returns why the chain would refuse it, for a sentence; undefined where it would not */
export function flawOf(authorization: KeyAuthorization.KeyAuthorization, chainId: number): string | undefined {
  const { limits = [], scopes = [], witness, isAdmin } = authorization;
  if (authorization.chainId !== BigInt(chainId)) return 'is for another chain';
  // Not every network knows these yet, and a payment needs neither.
  if (witness !== undefined) return 'has a witness; authorize the key by itself';
  if (isAdmin) return 'makes it an administrator; authorize the key by itself';
  if (hasTwice(limits.map(({ token }) => lower(token)))) return 'has two limits for one token';
  if (limits.some(({ limit }) => limit >= 1n << 128n)) return 'has a limit that is too great';
  if (hasTwice(scopes.map(({ address, selector }) => lower(`${address} ${selector}`))))
    return 'has two rules for one call';
  return scopes.some((scope) => !isScopeValid(scope)) ? 'has a rule for calls that the network refuses' : undefined;
}

function isScopeValid({ address, selector, recipients = [] }: CallScope): boolean {
  if (ZERO.test(address) || (selector !== undefined && !/^0x[0-9a-f]{8}$/i.test(selector))) return false;
  if (recipients.length === 0) return true;
  return (
    TIP20.test(lower(address)) &&
    WITH_RECIPIENTS.includes(lower(selector ?? '')) &&
    !recipients.some((recipient) => ZERO.test(recipient)) &&
    !hasTwice(recipients.map(lower))
  );
}

export function rulesOf(authorization: KeyAuthorization.KeyAuthorization, token: Hex): KeyRules {
  const { type, expiry, limits, scopes } = authorization;
  // Where rules for calls follow, no limits are written as an empty list, which the chain reads as: nothing of any token.
  const isUnlimited = limits === undefined && scopes === undefined;
  const limit = limits?.find((one) => lower(one.token) === lower(token))?.limit ?? 0n;
  return { kind: type, expiry: BigInt(expiry ?? 0), remaining: isUnlimited ? undefined : limit, scopes };
}

function hasTwice(texts: readonly string[]): boolean {
  return new Set(texts).size < texts.length;
}
