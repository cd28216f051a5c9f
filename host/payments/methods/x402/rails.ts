/**
 * x402 `exact` (EIP-3009) and `upto` (Permit2). Stock clients pay both; `upto` settles what was used. This process
 * verifies; it settles with an account of its own, or has a facilitator elsewhere do it.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { x402Facilitator } from '@x402/core/facilitator';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { PERMIT2_ADDRESS, toFacilitatorEvmSigner, x402UptoPermit2ProxyAddress } from '@x402/evm';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import { UptoEvmScheme } from '@x402/evm/upto/facilitator';
import type { Account, Hex } from 'viem';
import type { PaymentRow } from '../../../registry/payments/schema.ts';
import type { Money } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import type { X402Client, X402Network } from '../../network/types.ts';
import {
  assetId,
  custodyOf,
  lower,
  type Offer,
  payerDid,
  type SettleResult,
  type Share,
  type Terms,
  termsFromText,
} from '../../terms.ts';
import { isExpired } from '../chain/chain-time.ts';
import { allowedTo, assertFunded, heldBy } from '../chain/funds.ts';
import { isOpen } from '../chain/node-errors.ts';
import type { Presented, Rail } from '../method.ts';
import { batchRail } from './batch/rail.ts';
import { evmPayload, readX402, type X402Credential, x402Of } from './credential.ts';
import { type Gas, transactionsOf } from './gas.ts';
import { lookUp } from './look-up.ts';
import { type X402Offer, x402Offer } from './offer.ts';
import type { SolanaPlace, X402Place } from './place.ts';
import { type RemoteFacilitator, reason } from './remote-facilitator.ts';
import type { X402Requirements } from './requirements.ts';

/** How long a signature stays good, seconds; `slow` routes get the longer one. */
const TIMEOUT_SECONDS = 300;
const SLOW_TIMEOUT_SECONDS = 3_600;

/** x402 refuses to settle in the last six seconds of a signature. */
const SETTLE_MARGIN_MS = 10_000;

/** For how long an account is believed to have the code that it had, ms. */
const SAME_CODE_MS = 2_000;

/** What the facilitator asks the network. */
const ASKING = ['readContract', 'verifyTypedData', 'getCode', 'writeContract', 'sendTransaction'] as const;

/** What x402 needs of the host. */
export interface X402Needs {
  x402: readonly X402Place[];
  solana: readonly SolanaPlace[];
  /** Pays the gas. */
  facilitator: Account;
  gas: Gas;
}

/** Whether Permit2 and x402's proxy for `upto` are on the chain. */
export async function uptoAvailable(network: X402Network): Promise<boolean> {
  const client = network.getClient();
  const addresses = [PERMIT2_ADDRESS, x402UptoPermit2ProxyAddress] as Hex[];
  const codes = await Promise.all(addresses.map((address) => client.getCode({ address }).catch(() => undefined)));
  return codes.every((code) => code !== undefined && code !== '0x');
}

export async function x402Rails({ x402, solana, facilitator, gas }: X402Needs): Promise<Rail[]> {
  const rails = x402.flatMap((place) => [
    ...railsOf({ ...place, facilitator, gas }),
    ...(place.keeper ? [batchRail({ network: place.network, keeper: place.keeper, gas })] : []),
  ]);
  return [...rails, ...(await solanaRails(solana, gas))];
}

/** Its code is large: a host that takes nothing on Solana does not load it. */
async function solanaRails(places: readonly SolanaPlace[], gas: Gas): Promise<Rail[]> {
  if (places.length === 0) return [];
  const { solanaRail } = await import('./solana/rail.ts');
  return places.map((place) => solanaRail(place, gas));
}

interface X402Options extends X402Place {
  facilitator: Account;
  gas: Gas;
}

function railsOf({ network, facilitator: account, lanes, gas, remote, upto }: X402Options): Rail[] {
  const chainId = network.chain.id;
  const client = network.getClient(account);
  const asking = new AsyncLocalStorage<{ isOpen: boolean }>();
  const own = toFacilitatorEvmSigner(
    noting({ ...client, ...lanes.signer(account), getCode: codeOf(client), address: account.address }, (error) => {
      const asked = asking.getStore();
      if (asked && isOpen(error)) asked.isOpen = true;
    }) as never,
  );
  const signer = remote ? { ...own, ...inTheNameOf(remote, client) } : own;
  const facilitator = new x402Facilitator();
  facilitator.register(network.network, new ExactEvmScheme(signer));
  if (upto) facilitator.register(network.network, new UptoEvmScheme(signer));
  const collector = lower(account.address);

  function requirements(scheme: 'exact' | 'upto', terms: Terms, recipient: string): X402Requirements {
    return {
      scheme,
      network: network.network,
      asset: network.token,
      amount: terms.amount.toString(),
      payTo: recipient,
      maxTimeoutSeconds: terms.slow || terms.kind === 'binding' ? SLOW_TIMEOUT_SECONDS : TIMEOUT_SECONDS,
      extra: {
        name: network.name,
        version: network.version,
        assetTransferMethod: scheme === 'exact' ? 'eip3009' : 'permit2',
        ...(scheme === 'upto' ? { facilitatorAddress: remote ? remote.accountsOf('upto')[0] : account.address } : {}),
        ...(terms.meta?.token === undefined ? {} : { challenge: terms.meta.token }),
      },
    };
  }

  function stored(payment: PaymentRow): X402Credential {
    return readX402(payment.credential ?? '');
  }

  const chain = { client, token: network.token, expired: false };

  const noted = (payment: PaymentRow, result: SettleResult) => remote?.noted(payment, result) ?? result;

  async function send(presented: X402Credential, payment: PaymentRow, amount: Money): Promise<SettleResult> {
    const { payload, accepted } = accepting(
      presented,
      requirements('exact', termsFromText(payment.terms), payment.recipient),
    );
    const asked = { isOpen: false };
    try {
      const required = { ...accepted, amount: amount.toString() };
      const elsewhere = await remote?.settle(payload, required);
      if (elsewhere?.success) return confirmed(presented, payment, amount);
      const result = elsewhere ?? (await asking.run(asked, () => facilitator.settle(payload, required)));
      if (result.success && result.transaction !== undefined)
        return { status: 'settled', reference: result.transaction };
      if (result.errorReason?.includes('pending'))
        return { status: 'unknown', reason: 'the network did not confirm in time' };
      const found = await lookUp(chain, presented.payload, payment, amount);
      if (found) return found;
      // The facilitator calls that failed, too; but the node may have taken the transaction. One elsewhere that refuses
      // what this host finds good may have sent it, or send it yet.
      if (elsewhere ? !elsewhere.isRefusal || (await isGood(payload, required)) : asked.isOpen)
        return { status: 'unknown', reason: 'the network did not say whether it took the payment' };
      return { status: 'failed', reason: reason(result.errorReason) };
    } catch (error) {
      const found = await lookUp(chain, presented.payload, payment, amount);
      return found ?? { status: 'unknown', reason: reason(error instanceof Error ? error.name : undefined) };
    }
  }

  async function isGood(payload: PaymentPayload, required: PaymentRequirements): Promise<boolean> {
    return facilitator.verify(payload, required).then(
      ({ isValid }) => isValid,
      () => true,
    );
  }

  /** What was settled elsewhere, as the chain has it: whoever says so may know of it before this host's node, or lie. */
  async function confirmed(presented: X402Credential, payment: PaymentRow, amount: Money): Promise<SettleResult> {
    const end = performance.now() + (remote?.timeoutMs ?? 0);
    for (;;) {
      const found = await lookUp(chain, presented.payload, payment, amount);
      if (found && found.status !== 'unknown') return found;
      if (performance.now() > end)
        return { status: 'unknown', reason: 'the chain does not know what the facilitator says to have settled' };
      await delay(client.pollingInterval);
    }
  }

  const asset = assetId(chainId, network.token);

  /** Permit2 spends what the wallet has let it. */
  function sharesOf(scheme: 'exact' | 'upto', wallet: Hex, amount: bigint): Share[] {
    const of = `${asset} ${lower(wallet)}`;
    const asked = { client, token: network.token, wallet };
    const held: Share = { of, amount, holds: 'The wallet holds', left: () => heldBy(asked) };
    if (scheme === 'exact') return [held];
    const spendable = () => allowedTo(PERMIT2_ADDRESS as Hex, asked);
    return [held, { of: `${of} permit2`, amount, holds: 'Permit2 may spend', left: spendable }];
  }

  function rail(scheme: 'exact' | 'upto'): Rail {
    const name = `x402/${scheme}` as const;
    // Of `exact` all that is signed moves, and the books give back what was not charged.
    const moved = ({ authorized }: PaymentRow, amount: Money) => (scheme === 'exact' ? authorized : amount);
    // The first is the settlement.
    const transactions = (terms: Terms) => transactionsOf(scheme, terms) - (remote ? 1 : 0);
    return {
      name,
      asset,
      offer(terms): X402Offer | undefined {
        // A tenant's own challenge may be captured in part, too.
        if (scheme === 'upto' && terms.kind !== 'binding' && !isMeteredRoute(terms)) return undefined;
        if (remote?.settles(scheme) === false || !gas.mayOffer(terms, chainId, transactions(terms))) return undefined;
        const custody = custodyOf({ takesParts: scheme === 'upto', outlastsSlowWork: true }, terms);
        const payTo = lower(terms.payTo ?? network.recipient);
        const recipient = custody === 'collected' ? collector : payTo;
        return {
          via: 'x402',
          rail: name,
          custody,
          asset,
          recipient,
          payTo,
          requirements: requirements(scheme, terms, recipient),
        };
      },

      async verify(given: Presented, offer: Offer) {
        const presented = x402Of(given);
        const { requirements: offered } = x402Offer(offer);
        const payload = evmPayload(presented.payload);
        let answer: Awaited<ReturnType<typeof facilitator.verify>>;
        try {
          answer = await facilitator.verify(accepting(presented, offered).payload, offered as PaymentRequirements);
        } catch (error) {
          throw new Problem('payment_invalid', 'The x402 payment could not be verified; pay again.', { cause: error });
        }
        const [from, until] =
          'authorization' in payload
            ? [payload.authorization.from, payload.authorization.validBefore]
            : [payload.permit2Authorization.from, payload.permit2Authorization.deadline];
        if (!answer.isValid) {
          const microUsd = BigInt(offered.amount);
          if (answer.invalidReason?.endsWith('insufficient_balance'))
            await assertFunded({ client, chain: network.chain, token: network.token, wallet: from as Hex, microUsd });
          throw new Problem('payment_invalid', `x402: ${reason(answer.invalidReason)}.`);
        }
        await remote?.verify(accepting(presented, offered).payload, offered as PaymentRequirements);
        const limit = BigInt(Date.now()) + 24n * 3_600_000n;
        const untilMs = BigInt(until) * 1000n;
        return {
          payer: { address: lower(from), did: payerDid(chainId, from) },
          settleBefore: Number(untilMs < limit ? untilMs : limit) - SETTLE_MARGIN_MS,
          shares: sharesOf(scheme, from as Hex, BigInt(offered.amount)),
        };
      },

      async settle(payment, amount) {
        await gas.note(payment.tenant, chainId, transactions(termsFromText(payment.terms)));
        return noted(payment, await send(stored(payment), payment, moved(payment, amount)));
      },

      async reconcile(payment, amount) {
        const presented = stored(payment);
        const expired = await isExpired(client, (payment.settleBefore ?? 0) + SETTLE_MARGIN_MS);
        const moves = moved(payment, amount);
        const found = await lookUp({ ...chain, expired }, presented.payload, payment, moves);
        if (found && found.status !== 'unknown') return noted(payment, found);
        if (found) return found;
        if (expired)
          return noted(payment, { status: 'failed', reason: 'the authorization expired before the network took it' });
        if (remote?.mayAsk(payment) === false)
          return { status: 'unknown', reason: 'the facilitator did not settle it a moment ago' };
        const result = await send(presented, payment, moves);
        // A refusal of this one says nothing of the one before, which may wait in a pool until its signature expires.
        return noted(payment, result.status === 'failed' ? { ...result, status: 'unknown' } : result);
      },
    };
  }

  return upto ? [rail('exact'), rail('upto')] : [rail('exact')];
}

function isMeteredRoute({ kind, mode }: Terms): boolean {
  return kind === 'route' && mode === 'metered';
}

/**
 * A payment as the facilitator reads it.
 * @param offered stands in for what version 1 does not say of what was accepted; `match` has compared what it says
 */
function accepting({ version, payload }: X402Credential, offered: X402Requirements) {
  const accepted = (version === 1 ? offered : payload.accepted) as PaymentRequirements;
  return { accepted, payload: { ...payload, x402Version: 2, accepted } as PaymentPayload };
}

/** What a facilitator elsewhere would do is tried in its name. */
function inTheNameOf(remote: RemoteFacilitator, client: X402Client) {
  return {
    getAddresses: () => remote.accountsOf('upto') as Hex[],
    readContract(asked: Parameters<X402Client['readContract']>[0]) {
      const [account] = remote.accountsOf('upto') as Hex[];
      return client.readContract({ ...asked, ...(account ? { account } : {}) });
    },
  };
}

/**
 * The code at an address, asked once for what follows within a moment: to verify and to settle one payment the
 * facilitator asks four times. What has changed meanwhile the chain itself sees when it settles.
 */
function codeOf({ getCode }: X402Client): X402Client['getCode'] {
  const known = new Map<string, ReturnType<X402Client['getCode']>>();
  return (asked) => {
    const found = known.get(asked.address);
    if (found) return found;
    const code = getCode(asked);
    known.set(asked.address, code);
    const forget = () => void known.delete(asked.address);
    code.then(() => setTimeout(forget, SAME_CODE_MS).unref(), forget);
    return code;
  };
}

/** The same signer, which tells why calls of the network fail. */
function noting<T extends object>(signer: T, onError: (error: unknown) => void): T {
  const entries = ASKING.filter((name) => name in signer).map((name) => {
    const ask = signer[name as keyof T] as (...values: unknown[]) => Promise<unknown>;
    const noted = async (...values: unknown[]) => {
      try {
        return await ask(...values);
      } catch (error) {
        onError(error);
        throw error;
      }
    };
    return [name, noted];
  });
  return { ...signer, ...Object.fromEntries(entries) };
}
