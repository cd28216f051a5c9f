/**
 * MPP `tempo/charge`: the payer signs a TIP-20 transfer bound to the challenge by its memo; we check it, and send it
 * when the work is done. mppx checks the credential; sending is ours, because it must be repeatable after a crash.
 */

import { Store, tempo } from 'mppx/server';
import { Methods } from 'mppx/tempo';
import { type Hex, isAddressEqual, keccak256, TransactionReceiptNotFoundError } from 'viem';
import { getTransactionReceipt, sendRawTransactionSync } from 'viem/actions';
import { Abis, Transaction } from 'viem/tempo';
import type { PaymentRow } from '../../../registry/payments/schema.ts';
import { Problem } from '../../../shared/problem.ts';
import type { MppNetwork } from '../../network/types.ts';
import {
  assetId,
  custodyOf,
  lower,
  type Offer,
  payerDid,
  type SettleResult,
  type Share,
  type Terms,
} from '../../terms.ts';
import type { Address } from '../../types.ts';
import { isExpired } from '../chain/chain-time.ts';
import { assertFunded, heldBy } from '../chain/funds.ts';
import { isRefusal } from '../chain/node-errors.ts';
import type { Presented, Rail } from '../method.ts';
import { assertSignerMayPay } from './access-key.ts';
import { mppOf, readMpp } from './credential.ts';
import { networkFeeOf } from './network-fee.ts';
import { type MppOffer, mppOffer } from './offer.ts';
import { assertGasForSigner, assertSendable, nonceOf, type SignedTransaction } from './sendable.ts';

/** Time left before a transaction expires in which a settlement is still begun, ms. */
const SETTLE_MARGIN_MS = 4_000;

/** @returns ms since the Unix epoch */
function validUntil({ validBefore }: SignedTransaction): number {
  return validBefore === undefined ? Number.POSITIVE_INFINITY : validBefore * 1000;
}

/** What the payer's wallet must hold. */
type Needed = Pick<Parameters<typeof assertFunded>[0], 'token' | 'microUsd'>;

interface Transfer {
  raw: Hex;
  hash: Hex;
  /** ms since the Unix epoch. */
  validUntil: number;
}

/** The last ones that were taken apart: each is verified, and sent a moment later, and to recover its signer takes milliseconds. */
const takenApart = new Map<string, SignedTransaction>();
const TAKEN_APART = 64;

// To read a call viem hashes the signatures of all functions before the one that is called, which mppx does twice a
// charge and takes 0.7 ms. In what order an ABI names them means nothing: those that pay come first.
const isTransfer = ({ name }: { name: string }) => /^transfer(WithMemo)?$/.test(name);
(Abis.tip20 as unknown as { name: string }[]).sort((a, b) => Number(isTransfer(b)) - Number(isTransfer(a)));

/** A transaction lives 25 s after it is signed. */
export const TEMPO_CHARGE = { takesParts: false, outlastsSlowWork: false };

export interface TempoChargeOptions {
  network: MppNetwork;
  /** Receives what has to be split or may be given back. */
  collector: Address;
  challengeKey: string;
}

export function tempoCharge({ network, collector, challengeKey }: TempoChargeOptions): Rail {
  const chainId = network.chain.id;
  const client = network.getClient();
  const method = tempo.charge({
    getClient: () => client,
    currency: network.currency,
    recipient: network.recipient,
    store: Store.memory(),
  });

  async function transactionOf(payment: PaymentRow): Promise<Transfer> {
    return signedTransaction(readMpp(payment.credential ?? '', challengeKey).credential.payload);
  }

  async function requireFunds(wallet: Hex, needed: readonly Needed[]): Promise<void> {
    await Promise.all(needed.map((part) => assertFunded({ client, chain: network.chain, wallet, ...part })));
  }

  function sharesOf(wallet: Hex, { token, microUsd: amount }: Needed): Share {
    const left = () => heldBy({ client, token, wallet });
    return { of: `${assetId(chainId, token)} ${lower(wallet)}`, amount, holds: 'The wallet holds', left };
  }

  /** Of each token, the price and the network's fee. */
  async function neededFor(offer: Offer, transaction: SignedTransaction): Promise<Needed[]> {
    const price = { token: network.currency, microUsd: BigInt(String(mppOffer(offer).request.amount)) };
    const fee = await networkFeeOf(client, transaction, network.currency);
    if (!fee) return [price];
    const isOneToken = isAddressEqual(fee.token, price.token);
    return isOneToken ? [{ ...price, microUsd: price.microUsd + fee.microUsd }] : [price, fee];
  }

  async function lookUp(hash: Hex): Promise<SettleResult | undefined> {
    try {
      const receipt = await getTransactionReceipt(client, { hash });
      return receipt.status === 'success'
        ? { status: 'settled', reference: hash }
        : { status: 'failed', reason: 'the transfer was reverted by the chain' };
    } catch (error) {
      if (error instanceof TransactionReceiptNotFoundError) return undefined;
      return { status: 'unknown', reason: 'the network does not answer' };
    }
  }

  async function send(raw: Hex, hash: Hex): Promise<SettleResult> {
    try {
      const receipt = await sendRawTransactionSync(client, { serializedTransaction: raw as never, timeout: 10_000 });
      if (receipt.status === 'success') return { status: 'settled', reference: receipt.transactionHash };
      return { status: 'failed', reason: 'the transfer was reverted by the chain' };
    } catch (error) {
      const found = await lookUp(hash);
      if (found) return found;
      // Only an answer of the node that it refused the transaction is final; a silent one may still include it.
      return isRefusal(error)
        ? { status: 'failed', reason: 'the network refused the transfer' }
        : { status: 'unknown', reason: 'the network did not confirm the transfer in time' };
    }
  }

  const asset = assetId(chainId, network.currency);
  return {
    name: 'tempo/charge',
    asset,

    offer(terms: Terms): MppOffer {
      const custody = custodyOf(TEMPO_CHARGE, terms);
      const payTo = lower(terms.payTo ?? network.recipient);
      const recipient = custody === 'collected' ? collector : payTo;
      return {
        via: 'mpp',
        rail: 'tempo/charge',
        method: 'tempo',
        intent: 'charge',
        custody,
        asset,
        recipient,
        payTo,
        // Pushed transfers would have moved the money before the work: only signed ones are taken.
        request: {
          amount: terms.amount.toString(),
          currency: network.currency,
          recipient,
          methodDetails: { chainId, ...(terms.amount === 0n ? {} : { supportedModes: ['pull'] }) },
        },
      };
    },

    async verify(given: Presented, offer: Offer) {
      const presented = mppOf(given);
      const payload = Methods.charge.schema.credential.payload.safeParse(presented.credential.payload);
      if (!payload.success || payload.data.type !== 'transaction')
        throw new Problem(
          'payment_invalid',
          'Send a signed transaction (mode "pull"); transfers made beforehand are not taken.',
        );
      const credential = { ...presented.credential, payload: payload.data };
      let transaction: SignedTransaction;
      try {
        transaction = takeApart(payload.data.signature);
      } catch (error) {
        throw new Problem('payment_invalid', describe(error), { cause: error });
      }
      if (!isCanonical(payload.data.signature, (await Transaction.serialize(transaction as never)) as string))
        throw new Problem('payment_invalid', 'The transaction is not in its canonical encoding; sign a new one.');
      if (transaction.from === undefined) throw new Problem('payment_invalid', 'The transaction is not signed.');
      // A damaged signature recovers to some other address, and the chain's simulation does not look at its balance.
      if (
        presented.credential.source !== undefined &&
        lower(presented.credential.source.split(':').pop() ?? '') !== lower(transaction.from)
      )
        throw new Problem('payment_invalid', 'The transaction is not signed by the wallet that the credential names.');
      const challengeExpires = Date.parse(credential.challenge.expires ?? '') || 0;
      let settleBefore = Math.min(validUntil(transaction), challengeExpires) - SETTLE_MARGIN_MS;
      const assertInTime = (): void => {
        if (settleBefore <= Date.now())
          throw new Problem('payment_invalid', 'The signed transaction has expired; sign a new one.');
      };
      // Nodes call the simulation of an expired one an internal error, and the client asks again for a second.
      assertInTime();
      await assertSendable(client, transaction, challengeExpires);
      const needed = await neededFor(offer, transaction);
      try {
        await method.validate?.({ credential, request: credential.challenge.request } as never);
      } catch (error) {
        // What the simulation of a wallet without money says is no help.
        await requireFunds(transaction.from, needed);
        throw new Problem('payment_invalid', describe(error), { cause: error });
      }
      const { from } = transaction;
      await requireFunds(from, needed);
      const shares = [...needed.map((part) => sharesOf(from, part)), ...nonceOf(client, chainId, transaction)];
      for (const { token, microUsd: amount } of needed) {
        const { until, key, ...signer } = await assertSignerMayPay(payload.data.signature as Hex, {
          client,
          chainId,
          token,
          amount,
        });
        shares.push(...signer.shares);
        await assertGasForSigner(client, transaction, key);
        settleBefore = Math.min(settleBefore, until - SETTLE_MARGIN_MS);
      }
      assertInTime();
      return { payer: { address: lower(from), did: payerDid(chainId, from) }, settleBefore, shares };
    },

    async settle(payment) {
      const { raw, hash } = await transactionOf(payment);
      return send(raw, hash);
    },

    async reconcile(payment) {
      const { raw, hash, validUntil } = await transactionOf(payment);
      const expired = await isExpired(client, validUntil);
      const found = await lookUp(hash);
      if (found) return found;
      if (expired) return { status: 'failed', reason: 'the transfer expired before the network took it' };
      return send(raw, hash);
    },
  };
}

/** @param serialized by a payer: anything at all. @throws Error when it is not a transaction */
function takeApart(serialized: string): SignedTransaction {
  const known = takenApart.get(serialized);
  if (known) return known;
  const transaction = Transaction.deserialize(serialized as never) as SignedTransaction;
  const [oldest] = takenApart.size < TAKEN_APART ? [] : takenApart.keys();
  if (oldest !== undefined) takenApart.delete(oldest);
  takenApart.set(serialized, Object.freeze(transaction));
  return transaction;
}

/** The canonical form of the payer's transaction: nodes normalize signatures before they hash (mppx 0.11 does the same). */
async function signedTransaction(payload: unknown): Promise<Transfer> {
  const { signature } = payload as { signature: Hex };
  const transaction = takeApart(signature);
  const raw = (await Transaction.serialize(transaction as never)) as unknown as Hex;
  return { raw, hash: keccak256(raw), validUntil: validUntil(transaction) };
}

/** The decoder forgives wrong lengths and odd parities; what is not what it encodes to again was tampered with. */
function isCanonical(given: string, encoded: string): boolean {
  const text = given.toLowerCase();
  // Wallets write the parity of a signature as 0 and 1, too.
  return text === encoded || text.replace(/00$/, '1b').replace(/01$/, '1c') === encoded;
}

/** The first line of a library's message, without addresses of nodes. */
export function describe(error: unknown): string {
  const message = error instanceof Error ? (error.message.split('\n')[0] ?? '') : '';
  return message === '' || /https?:\/\//.test(message)
    ? 'The payment could not be verified; pay the new challenge.'
    : message.slice(0, 300);
}
