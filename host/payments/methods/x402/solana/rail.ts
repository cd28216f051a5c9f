/**
 * x402 `exact` on Solana: the payer signs a transfer whose fee another pays, and x402's own facilitator checks it. The
 * host signs it to settle it, or has a facilitator elsewhere do so.
 */
import { type Address, isAddress } from '@solana/kit';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import { Problem } from '../../../../shared/problem.ts';
import { custodyOf, lower, type Terms } from '../../../terms.ts';
import type { Address as PayerAddress } from '../../../types.ts';
import type { Rail } from '../../method.ts';
import { x402Of } from '../credential.ts';
import type { Gas } from '../gas.ts';
import { type X402Offer, x402Offer } from '../offer.ts';
import type { SolanaPlace } from '../place.ts';
import { reason } from '../remote-facilitator.ts';
import type { X402Requirements } from '../requirements.ts';
import { MOST_COMPUTE_UNITS, MOST_PRIORITY_FEE, MOST_SIGNATURES } from './cost.ts';
import { heldIn } from './look-up.ts';
import { ownSettler, remoteSettler, type Settler } from './settlers.ts';
import {
  assertLeavesFeePayerAlone,
  assertMovesMoneyOfSigner,
  readable,
  type Sent,
  sentBy,
  sourceOf,
  transactionOf,
} from './transaction.ts';

/** Blocks know a transaction for 150 slots of 0.4 s after the block that it names, ms. */
const LIFE_MS = 60_000;
const TIMEOUT_SECONDS = 60;

export function solanaRail({ network, remote }: SolanaPlace, gas: Gas): Rail {
  const { ask } = network;
  /** Who may pay the fee; the first is offered. */
  const feePayers = () => (remote ? remote.accountsOf('exact') : [network.feePayer]);
  /** Sent by the host for a payment. */
  const transactions = remote ? 0 : 1;
  const asset = `${network.network}/${network.token}`;
  const facilitator = new ExactSvmScheme(
    {
      getAddresses: () => feePayers() as Address[],
      async simulateTransaction(transaction) {
        const how = { encoding: 'base64', commitment: 'confirmed', sigVerify: false, replaceRecentBlockhash: false };
        const { value } = await ask<{ value: { err: unknown } }>('simulateTransaction', [transaction, how]);
        if (value.err !== null) throw new Error('the transaction fails');
      },
      ...{ signTransaction: never, sendTransaction: never, confirmTransaction: never },
    },
    undefined,
    {
      maxRequiredSignatures: MOST_SIGNATURES,
      maxComputeUnits: MOST_COMPUTE_UNITS,
      maxPriorityFeeMicroLamports: MOST_PRIORITY_FEE,
    },
  );

  function recipientOf({ payTo, payToSolana }: Terms): string | undefined {
    if (payToSolana !== undefined) return payToSolana;
    return payTo !== undefined && network.operators.includes(lower(payTo)) ? network.recipient : undefined;
  }

  function requirements(amount: bigint, payTo: string, payer: string): X402Requirements {
    return {
      scheme: 'exact',
      network: network.network,
      asset: network.token,
      amount: amount.toString(),
      payTo,
      maxTimeoutSeconds: TIMEOUT_SECONDS,
      extra: { feePayer: payer },
    };
  }

  const own = ownSettler(network);
  const elsewhere = remoteSettler(network, remote, ({ payment, feePayer: payer }) =>
    requirements(payment.authorized, payment.recipient, payer),
  );
  /** By whose signature a transaction waits for: the facilitator may have been another when it was made. */
  const settlerOf = (sent: Sent): Settler => (sent.feePayer === network.feePayer ? own : elsewhere);

  return {
    name: 'x402/exact',
    asset,
    offer(terms): X402Offer | undefined {
      const custody = custodyOf({ takesParts: false, outlastsSlowWork: false }, terms);
      const recipient = recipientOf(terms);
      // An owner proves itself with an EVM key, so deploys are not paid on Solana. The host sends no money there.
      if (terms.kind !== 'route' || custody !== 'direct' || recipient === undefined || !isAddress(recipient))
        return undefined;
      const [payer] = feePayers();
      if (payer === undefined || !gas.mayOffer(terms, network.network, transactions)) return undefined;
      return {
        via: 'x402',
        rail: 'x402/exact',
        custody,
        asset,
        recipient: recipient as unknown as PayerAddress,
        payTo: recipient as unknown as PayerAddress,
        requirements: requirements(terms.amount, recipient, payer),
      };
    },

    async verify(given, offer) {
      const presented = x402Of(given);
      const message = readable(transactionOf(presented));
      assertLeavesFeePayerAlone(message);
      assertMovesMoneyOfSigner(message);
      const { requirements: offered } = x402Offer(offer);
      const payer = feePayers().find((one) => one === message.staticAccounts[0]);
      const accepted = { ...offered, ...(payer === undefined ? {} : { extra: { feePayer: payer } }) };
      const payload = presented.payload as unknown as PaymentPayload;
      const answer = await facilitator.verify(payload, accepted as PaymentRequirements).catch((cause) => {
        throw new Problem('payment_invalid', 'The x402 payment could not be verified; pay again.', { cause });
      });
      if (answer.invalidReason?.endsWith('simulation_failed'))
        throw new Problem(
          'payment_invalid',
          `x402: ${reason(answer.invalidReason)}: ${network.name} does not take the transaction, or does not answer. Does the wallet hold enough, is the transaction younger than a minute, and has ${accepted.payTo} an account for ${network.token}? Nothing was charged.`,
        );
      if (!answer.isValid || !answer.payer)
        throw new Problem('payment_invalid', `x402: ${reason(answer.invalidReason)}.`);
      const required = accepted as PaymentRequirements;
      await remote?.verify({ ...payload, accepted: required }, required);
      const source = sourceOf(message);
      const left = () => heldIn(ask, source);
      return {
        payer: { address: answer.payer as PayerAddress, did: `did:pkh:${network.network}:${answer.payer}` },
        settleBefore: Date.now() + LIFE_MS,
        // Not of who signs: an account may let somebody else spend of it, too.
        shares: [{ of: `${asset} ${source}`, amount: BigInt(accepted.amount), holds: 'The wallet holds', left }],
      };
    },

    async settle(payment) {
      await gas.note(payment.tenant, network.network, transactions);
      const sent = sentBy(payment);
      return settlerOf(sent).settle(sent);
    },

    async reconcile(payment) {
      const sent = sentBy(payment);
      return settlerOf(sent).reconcile(sent);
    },
  };
}

function never(): never {
  throw new Error('x402 only verifies here');
}
