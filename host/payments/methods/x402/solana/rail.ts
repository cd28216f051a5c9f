/**
 * x402 `exact` on Solana: the payer signs a transfer whose fee the host pays, and x402's own facilitator checks it. The
 * host signs it only to settle it. Its signature, by which the chain knows it, follows from the transaction and the key:
 * after a crash it is the same, so that nothing of it has to be noted.
 */
import {
  type Address,
  type CompiledTransactionMessage,
  getBase58Decoder,
  getCompiledTransactionMessageDecoder,
  getTransactionDecoder,
  isAddress,
} from '@solana/kit';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import type { PaymentRow } from '../../../../registry/payments/schema.ts';
import { Problem } from '../../../../shared/problem.ts';
import type { SolanaNetwork } from '../../../network/types.ts';
import { custodyOf, lower, type SettleResult, type Terms } from '../../../terms.ts';
import type { Address as PayerAddress } from '../../../types.ts';
import type { Rail } from '../../method.ts';
import { readX402, signedMessage, type X402Credential, x402Of } from '../credential.ts';
import type { Gas } from '../gas.ts';
import { type X402Offer, x402Offer } from '../offer.ts';
import { reason } from '../remote-facilitator.ts';
import { MOST_COMPUTE_UNITS, MOST_PRIORITY_FEE, MOST_SIGNATURES } from './cost.ts';
import { confirmed, isOver, outcome } from './look-up.ts';

/** Blocks know a transaction for 150 slots of 0.4 s after the block that it names, ms. */
const LIFE_MS = 60_000;
const TIMEOUT_SECONDS = 60;

export function solanaRail(network: SolanaNetwork, gas: Gas): Rail {
  const { ask, feePayer } = network;
  const asset = `${network.network}/${network.token}`;
  const facilitator = new ExactSvmScheme(
    {
      getAddresses: () => [feePayer as Address],
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

  /** The transaction of a payment, signed as who pays its fee. */
  async function signed(payment: PaymentRow) {
    const bytes = transactionOf(readX402(payment.credential ?? ''));
    const message = signedMessage(bytes);
    const signature = await network.sign(message);
    bytes.set(signature, 1);
    return {
      signature: getBase58Decoder().decode(signature),
      wire: bytes.toString('base64'),
      blockhash: messageOf(message).lifetimeToken,
    };
  }

  /** @returns undefined where it is not known to have been refused */
  async function send(wire: string): Promise<SettleResult | undefined> {
    try {
      await ask('sendTransaction', [wire, { encoding: 'base64', preflightCommitment: 'confirmed' }]);
    } catch (error) {
      if (isRefusal(error)) return { status: 'failed', reason: 'the network refused the transaction' };
    }
    return undefined;
  }

  return {
    name: 'x402/exact',
    asset,
    offer(terms): X402Offer | undefined {
      const custody = custodyOf({ takesParts: false, outlastsSlowWork: false }, terms);
      const recipient = recipientOf(terms);
      // An owner proves itself with an EVM key, so deploys are not paid on Solana. The host sends no money there.
      if (terms.kind !== 'route' || custody !== 'direct' || recipient === undefined || !isAddress(recipient))
        return undefined;
      if (!gas.mayOffer(terms, network.network)) return undefined;
      return {
        via: 'x402',
        rail: 'x402/exact',
        custody,
        asset,
        recipient: recipient as unknown as PayerAddress,
        payTo: recipient as unknown as PayerAddress,
        requirements: {
          scheme: 'exact',
          network: network.network,
          asset: network.token,
          amount: terms.amount.toString(),
          payTo: recipient,
          maxTimeoutSeconds: TIMEOUT_SECONDS,
          extra: { feePayer },
        },
      };
    },

    async verify(given, offer) {
      const presented = x402Of(given);
      const message = readable(transactionOf(presented));
      assertLeavesFeePayerAlone(message);
      const { requirements } = x402Offer(offer);
      const payload = presented.payload as unknown as PaymentPayload;
      const answer = await facilitator.verify(payload, requirements as PaymentRequirements).catch((cause) => {
        throw new Problem('payment_invalid', 'The x402 payment could not be verified; pay again.', { cause });
      });
      if (answer.invalidReason?.endsWith('simulation_failed'))
        throw new Problem(
          'payment_invalid',
          `x402: ${reason(answer.invalidReason)}: ${network.name} does not take the transaction, or does not answer. Does the wallet hold enough, is the transaction younger than a minute, and has ${requirements.payTo} an account for ${network.token}? Nothing was charged.`,
        );
      if (!answer.isValid || !answer.payer)
        throw new Problem('payment_invalid', `x402: ${reason(answer.invalidReason)}.`);
      const source = sourceOf(message);
      const left = () => heldIn(ask, source);
      return {
        payer: { address: answer.payer as PayerAddress, did: `did:pkh:${network.network}:${answer.payer}` },
        settleBefore: Date.now() + LIFE_MS,
        // Not of who signs: an account may let somebody else spend of it, too.
        shares: [{ of: `${asset} ${source}`, amount: BigInt(requirements.amount), holds: 'The wallet holds', left }],
      };
    },

    async settle(payment) {
      await gas.note(payment.tenant, network.network);
      const { signature, wire } = await signed(payment);
      const refused = await send(wire);
      // A node may refuse what it has taken a moment ago.
      return refused ? ((await outcome(ask, signature)) ?? refused) : confirmed(ask, signature);
    },

    async reconcile(payment) {
      const { signature, wire, blockhash } = await signed(payment);
      const over = await isOver(ask, blockhash, payment.createdAt);
      const found = await outcome(ask, signature);
      if (found) return found;
      if (over) return { status: 'failed', reason: 'the transaction expired before the network took it' };
      await send(wire);
      return (await outcome(ask, signature)) ?? { status: 'unknown', reason: 'the network has not confirmed it yet' };
    },
  };
}

function never(): never {
  throw new Error('x402 only verifies here');
}

function transactionOf({ payload: { payload } }: X402Credential): Buffer {
  if ('transaction' in payload) return Buffer.from(payload.transaction, 'base64');
  throw new Problem('payment_invalid', 'Not a payment on Solana.');
}

function messageOf(message: Uint8Array): CompiledTransactionMessage & { lifetimeToken: string } {
  return getCompiledTransactionMessageDecoder().decode(message) as never;
}

/** What x402's code cannot read it prints, and callers could fill the log with it. @throws Problem `payment_invalid` */
function readable(transaction: Uint8Array): CompiledTransactionMessage {
  try {
    return messageOf(new Uint8Array(getTransactionDecoder().decode(transaction).messageBytes));
  } catch (cause) {
    throw new Problem('payment_invalid', 'This is not a readable transaction of Solana.', { cause });
  }
}

/**
 * The host signs for the fee alone. Instructions that x402 lets through beside the transfer, those of Lighthouse, could
 * take the rent of new accounts from whoever of the signers they name.
 * @throws Problem `payment_invalid`
 */
function assertLeavesFeePayerAlone(message: CompiledTransactionMessage): void {
  const instructions = 'instructions' in message ? message.instructions : [];
  const isUsed = instructions.some(
    ({ accountIndices, programAddressIndex }) => programAddressIndex === 0 || accountIndices?.includes(0),
  );
  if (isUsed || instructions.length === 0)
    throw new Problem('payment_invalid', 'x402: the wallet that pays the fee has no part in the instructions.');
}

/** The account that the transfer takes from; x402 has seen that the third instruction is that. */
function sourceOf(message: CompiledTransactionMessage): string {
  const [, , transfer] = 'instructions' in message ? message.instructions : [];
  return message.staticAccounts[transfer?.accountIndices?.[0] ?? -1] ?? '';
}

/** @throws Problem `payment_invalid` where the node does not answer */
async function heldIn(ask: SolanaNetwork['ask'], account: string): Promise<bigint> {
  try {
    const how = { commitment: 'confirmed' };
    const { value } = await ask<{ value: { amount: string } }>('getTokenAccountBalance', [account, how]);
    return BigInt(value.amount);
  } catch (cause) {
    throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause });
  }
}

/** Whether the node looked at the transaction and did not pass it on; one that it knows already it refuses, too. */
function isRefusal(error: unknown): boolean {
  const { code, message, details } = error as { code?: number; message?: string; details?: string };
  return code === -32002 && !/already.?(been )?processed/i.test(`${message} ${details}`);
}
