/**
 * Mandates: a wallet signs once that this host may take up to an amount in each period, until a date. MPP calls it a
 * subscription; it is a key of Tempo's keychain that can do nothing but pay this host, whose limit, period and end the
 * chain enforces, and which the wallet can revoke there at any time. A draw is an ordinary charge that the host signs
 * with the key, so that all that holds for charges (one payment, recorded before it is sent) holds for draws.
 * decisions/0015-mandates.md says why.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Challenge, PaymentRequest } from 'mppx';
import { Methods, Subscription } from 'mppx/tempo';
import { KeyAuthorization } from 'ox/tempo';
import { encodeFunctionData, type Hex, zeroHash } from 'viem';
import { prepareTransactionRequest, readContract, sendRawTransaction, signTransaction } from 'viem/actions';
import { Abis, Addresses, Account as TempoAccount } from 'viem/tempo';
import { formatUsd, type Money, micro } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';
import type { MppNetwork } from '../../network/types.ts';
import { lower } from '../../terms.ts';
import type { Address, AskedMandate, Mandate, MandateProblem, Mandates } from '../../types.ts';
import { assertFunded } from '../chain/funds.ts';
import { notForThis } from '../common.ts';
import { mppOf, readMpp } from './credential.ts';
import { challengeWriter } from './offer.ts';

const CHALLENGE_LIFE_MS = 5 * 60_000;
/** Of the transaction that makes the key known to the chain: mppx allows as much. */
const AUTHORIZE_GAS = 5_000_000n;
const AUTHORIZE_LIFE_S = 25;
const CONFIRM_MS = 10_000;

export interface MandateOptions {
  network: MppNetwork;
  /** Receives what is drawn. */
  collector: Address;
  challengeKey: string;
  /** Secret of one nonce: 32 bytes. */
  derive(purpose: string): Buffer;
}

export function tempoMandates({ network, collector, challengeKey, derive }: MandateOptions): Mandates {
  const chainId = network.chain.id;
  const client = network.getClient();
  const secretOf = (nonce: string): Hex => `0x${derive(`mandate-key ${nonce}`).toString('hex')}`;
  const keyAddress = (nonce: string) => lower(TempoAccount.fromSecp256k1(secretOf(nonce)).address);
  const accountOf = ({ nonce, payer }: Mandate) => TempoAccount.fromSecp256k1(secretOf(nonce), { access: payer });

  function requestOf({ amount, days, until, recipient = collector }: AskedMandate, key: Address) {
    return Methods.subscription.schema.request.parse({
      amount: formatUsd(amount),
      decimals: network.decimals,
      currency: network.currency,
      recipient,
      periodCount: String(days),
      periodUnit: 'day',
      subscriptionExpires: new Date(until).toISOString(),
      methodDetails: { chainId, accessKey: { accessKeyAddress: key, keyType: 'secp256k1' } },
    });
  }

  function ask<Answer>(functionName: string, args: unknown[]): Promise<Answer> {
    const call = { address: Addresses.accountKeychain, abi: Abis.accountKeychain, functionName, args };
    return readContract(client, call as never) as Promise<Answer>;
  }
  const keyOf = ({ payer, key }: Mandate) =>
    ask<{ keyId: Hex; expiry: bigint; isRevoked: boolean }>('getKey', [payer, key]);
  const isKnown = async (mandate: Mandate) => lower((await keyOf(mandate)).keyId) === mandate.key;

  /** Makes the key known to the chain by a transaction of the key itself that moves nothing. */
  async function authorize(mandate: Mandate, authorization: Hex, recipient: Address): Promise<void> {
    if (await isKnown(mandate)) return;
    const account = accountOf(mandate);
    const signer = network.getClient(account);
    const nothing = encodeFunctionData({
      abi: Abis.tip20,
      functionName: 'transferWithMemo',
      args: [recipient, 0n, zeroHash],
    });
    const prepared = await prepareTransactionRequest(signer, {
      account,
      calls: [{ to: network.currency, data: nothing }],
      keyAuthorization: KeyAuthorization.deserialize(authorization),
      nonceKey: 'expiring',
      validBefore: Math.floor(Date.now() / 1000) + AUTHORIZE_LIFE_S,
      gas: AUTHORIZE_GAS,
    } as never);
    const raw = (await signTransaction(signer, prepared as never)) as unknown as Hex;
    // Whether it happened is what the chain says: another call with the same credential may have come first.
    await sendRawTransaction(client, { serializedTransaction: raw }).catch(() => undefined);
    const end = performance.now() + CONFIRM_MS;
    while (!(await isKnown(mandate))) {
      if (performance.now() > end)
        throw new Problem('payment_invalid', 'The network did not take the mandate; sign the new challenge.');
      await delay(client.pollingInterval);
    }
  }

  /** @throws Problem payment_invalid */
  async function assertUsable(mandate: Mandate, amount: Money): Promise<void> {
    const { payer, key } = mandate;
    const [{ isRevoked, expiry, keyId }, [remaining]] = await Promise.all([
      keyOf(mandate),
      ask<[bigint, bigint]>('getRemainingLimitWithPeriod', [payer, key, network.currency]),
    ]).catch((error) => {
      throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause: error });
    });
    if (isRevoked || lower(keyId) !== key) throw unusable('revoked', 'The wallet has revoked the mandate.');
    if (Number(expiry) * 1_000 <= Date.now()) throw unusable('expired', 'The mandate has ended.');
    if (remaining < amount)
      throw unusable('limit', `The mandate has ${formatUsd(micro(remaining))} USD left in this period.`);
    await assertFunded({
      client,
      chain: network.chain,
      token: network.currency,
      wallet: payer,
      microUsd: amount,
    }).catch((error) => {
      throw unusable('funds', (error as Problem).message);
    });
  }

  return {
    challenge(asked, realm) {
      const nonce = randomUUID();
      const request = PaymentRequest.serialize(requestOf(asked, keyAddress(nonce)) as never);
      const { description, scope, meta } = asked;
      const write = challengeWriter({ realm, method: 'tempo', intent: 'subscription', request, description });
      const opaque = PaymentRequest.serialize({ ...meta, n: nonce, scope });
      return write(challengeKey, { expires: new Date(Date.now() + CHALLENGE_LIFE_MS).toISOString(), opaque }).text;
    },

    async accept(headers, { scope, realm }) {
      const authorization = headers.get('authorization') ?? '';
      if (!/^payment /i.test(authorization))
        throw new Problem('payment_required', 'The caller signed no mandate; answer it with POST /mandate.');
      const { credential, meta, rail } = mppOf(readMpp(authorization, challengeKey));
      const { challenge } = credential;
      if (rail !== 'tempo/subscription') throw notForThis('This is a payment, and no mandate.');
      if (challenge.realm !== realm) throw notForThis('The mandate is for another host.');
      const { n: nonce = '', scope: signedFor, ...rest } = meta;
      if (signedFor !== scope) throw notForThis('The mandate is for another seller.');
      if (!(Date.parse(challenge.expires ?? '') > Date.now())) throw notForThis('The challenge has expired.');
      // The challenge is ours, to the letter: what it asks for is what this host has written.
      const request = challenge.request as {
        amount: string;
        periodCount: string;
        subscriptionExpires: string;
        recipient: Address;
      };
      const payload = Methods.subscription.schema.credential.payload.safeParse(credential.payload);
      if (!payload.success) throw new Problem('payment_invalid', 'The credential holds no key authorization.');
      const key = keyAddress(nonce);
      let payer: Address;
      try {
        const accessKey = { accessKeyAddress: key, keyType: 'secp256k1' as const };
        const signed = { accessKey, challengeId: challenge.id, chainId, payload: payload.data, request };
        payer = lower(Subscription.verifySubscriptionKeyAuthorization(signed as never).source.address);
      } catch (error) {
        throw new Problem(
          'payment_invalid',
          'The key authorization is not what the challenge asks for; sign it anew.',
          {
            cause: error,
          },
        );
      }
      const { amount, periodCount, subscriptionExpires } = request;
      const mandate = { nonce, payer, key, amount, days: Number(periodCount), until: Date.parse(subscriptionExpires) };
      await authorize(mandate, payload.data.signature as Hex, request.recipient);
      return { mandate, meta: rest };
    },

    async pay(mandate, amount, answer) {
      await assertUsable(mandate, amount);
      // Loaded by the first draw only: most hosts have none.
      const { tempo } = await import('mppx/client');
      const charge = Challenge.fromHeadersList(answer).find(
        ({ method, intent, request }) =>
          method === 'tempo' &&
          intent === 'charge' &&
          (request.methodDetails as { chainId?: number } | undefined)?.chainId === chainId,
      );
      if (!charge) throw new Error('the host offers no charge on the network of the mandate');
      const method = tempo.charge({ account: accountOf(mandate), getClient: () => client } as never);
      return method.createCredential({ challenge: charge, context: {} } as never);
    },
  };
}

function unusable(why: MandateProblem, detail: string): Problem {
  return new Problem('payment_invalid', `${detail} Nothing was charged.`, { extensions: { mandate: why } });
}
