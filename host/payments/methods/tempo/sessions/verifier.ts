/**
 * Accepts session credentials: opens channels, takes vouchers (twice, late or out of order: a voucher authorizes, it
 * is not spent), tops up, and closes on the payer's wish. Chain calls happen only where the chain has to change.
 */
import type { Credential } from 'mppx';
import { Session } from 'mppx/tempo';
import { type Hex, keccak256, zeroAddress } from 'viem';
import { getTransactionReceipt, waitForTransactionReceipt } from 'viem/actions';
import { atomic, type SignedAmount } from '../../../../registry/payments/channels.ts';
import type { ChannelRow } from '../../../../registry/payments/schema.ts';
import type { Money } from '../../../../shared/money.ts';
import { KeyedLock } from '../../../../shared/mutex.ts';
import { Problem } from '../../../../shared/problem.ts';
import { assetId, lower, payerDid, type Verified } from '../../../terms.ts';
import type { Address } from '../../../types.ts';
import { isKnown } from '../../chain/node-errors.ts';
import type { ChannelCalls } from '../../channels/calls.ts';
import { CheckedChannels } from '../../channels/checked.ts';
import { type ChannelKeeper, closeChannel } from '../../channels/keeper.ts';
import { describe } from '../charge.ts';
import { SessionChain, type SessionChainOptions } from './chain.ts';
import {
  type Close,
  type Open,
  readSessionPayload,
  type SessionNetwork,
  type SessionPayload,
  signerOf,
  type TopUp,
  type Voucher,
} from './payload.ts';
import { sessionReceipt } from './receipt.ts';
import { voucherSignedBy } from './voucher.ts';

const { Chain, Protocol } = Session.Precompile;

/** How long the chain's word on a channel (is it being closed by its payer?) is believed, ms. */
const CHAIN_STATE_MS = 15_000;
/** How long a deposit that somebody else has sent is waited for, ms. */
const CONFIRM_MS = 10_000;

export interface SessionVerifierOptions extends SessionChainOptions {
  /** Of all networks. */
  calls: ChannelCalls;
}

export class SessionVerifier implements ChannelKeeper {
  readonly network: SessionNetwork;
  readonly chain: SessionChain;
  readonly #options: SessionVerifierOptions;
  readonly #checked = new CheckedChannels(CHAIN_STATE_MS);
  readonly #locks = new KeyedLock();
  /** Top-ups on their way to the chain, by the hash of their transaction. */
  readonly #deposits = new Map<Hex, Promise<void>>();
  readonly #payloads = new WeakMap<Credential.Credential, SessionPayload>();

  constructor(options: SessionVerifierOptions) {
    this.#options = options;
    this.chain = new SessionChain(options);
    this.network = {
      chainId: options.network.chain.id,
      signatures: options.network.voucherSignatures,
      escrow: Protocol.tip20ChannelEscrow,
      token: options.network.currency,
      payee: lower(options.settler.address),
    };
  }

  read(credential: Credential.Credential): SessionPayload {
    const known = this.#payloads.get(credential);
    if (known) return known;
    const payload = readSessionPayload(credential.payload, this.network);
    this.#payloads.set(credential, payload);
    return payload;
  }

  /** Checks a credential that wants to be served. @throws Problem `payment_invalid` */
  async authorize(credential: Credential.Credential): Promise<Verified> {
    const payload = this.read(credential);
    const price = atomic(BigInt(String(credential.challenge.request.amount)));
    if (payload.action !== 'open' && payload.action !== 'voucher')
      throw new Problem('payment_invalid', `A ${payload.action} does not pay for a call.`);
    return this.#locks.run(payload.channelId, async () => {
      const opened = payload.action === 'open' ? await this.#open(payload, credential, price) : undefined;
      const { channel, voucher } = opened
        ? { channel: opened, voucher: undefined }
        : await this.#accept(payload, credential.source, price);
      return {
        ...(voucher ? { voucher } : {}),
        payer: { address: channel.payer as Address, did: payerDid(channel.chainId, channel.payer) },
        settleBefore: Number.POSITIVE_INFINITY,
        channel: channel.id,
        opened: payload.action === 'open',
      };
    });
  }

  /** @returns the answer to a credential that only manages a channel; undefined for one that asks for content */
  async managed(credential: Credential.Credential): Promise<Response | undefined> {
    const { action } = this.read(credential);
    return action === 'topUp' || action === 'close' ? this.manage(credential) : undefined;
  }

  /**
   * Credentials that manage a channel without asking for content: top-up, close, and a bare open or voucher.
   * @returns the 204 with its receipt
   */
  async manage(credential: Credential.Credential): Promise<Response> {
    const payload = this.read(credential);
    const receipt = await this.#receipt(payload, credential);
    return new Response(null, {
      status: 204,
      headers: {
        'payment-receipt': receipt,
        'cache-control': 'no-store',
        'access-control-expose-headers': 'Payment-Receipt',
      },
    });
  }

  async #receipt(payload: SessionPayload, credential: Credential.Credential): Promise<string> {
    // Without the channel's lock: anybody may send a top-up, and the chain may take minutes.
    if (payload.action === 'topUp') return this.#topUp(payload, credential);
    return this.#locks.run(payload.channelId, async () => {
      switch (payload.action) {
        case 'close':
          return this.#close(payload, credential);
        case 'open':
        case 'voucher': {
          const price = atomic(0n);
          const opened = payload.action === 'open' ? await this.#open(payload, credential, price) : undefined;
          if (opened) return sessionReceipt(opened, credential.challenge.id);
          const { channel, voucher } = await this.#accept(payload, credential.source, price);
          if (voucher) await this.#options.channels.voucher(channel.id, voucher);
          return sessionReceipt(channel, credential.challenge.id);
        }
      }
    });
  }

  exclusively<T>(id: string, work: () => Promise<T>): Promise<T> {
    return this.#locks.run(id, work);
  }

  /**
   * @returns undefined when the channel is there already: then the credential counts as a voucher. The chain tells
   * everybody its id and its transaction, and only its payer has signed for what it pays
   */
  async #open(payload: Open, credential: Credential.Credential, price: Money): Promise<ChannelRow | undefined> {
    const { channels, network } = this.#options;
    const { chainId, escrow, token, payee } = this.network;
    const { descriptor, cumulativeAmount, signature } = payload;
    if (!this.#signed(payload.channelId, cumulativeAmount, signature, signerOf(descriptor))) throw notSigned();
    const known = await channels.byId(payload.channelId);
    if (known && known.state !== 'opening' && known.state !== 'failed') return undefined;
    if (known?.state === 'opening' && (await this.confirmOpening(known))) return undefined;
    try {
      const result = await Chain.broadcastOpenTransaction({
        chainId,
        client: network.getClient() as never,
        challengeExpires: credential.challenge.expires,
        escrowContract: escrow,
        expectedAuthorizedSigner: descriptor.authorizedSigner,
        expectedChannelId: payload.channelId,
        expectedCurrency: token,
        expectedOperator: zeroAddress,
        expectedPayee: payee,
        expectedExpiringNonceHash: descriptor.expiringNonceHash,
        expectedPayer: descriptor.payer,
        serializedTransaction: payload.transaction,
        beforeBroadcast: async ({ openDeposit }) => {
          if (cumulativeAmount < price || cumulativeAmount > openDeposit || openDeposit < price)
            throw new Problem('payment_invalid', 'The deposit and the first voucher must cover the price.');
          await this.#note(payload, payload.transaction);
        },
      });
      await channels.opened(payload.channelId, atomic(result.state.deposit), result.txHash);
      this.#checked.note(payload.channelId);
      return channels.byId(payload.channelId);
    } catch (error) {
      if (isKnown(error)) await this.#succeeded(keccak256(payload.transaction), error);
      const noted = await channels.byId(payload.channelId);
      if (noted && (await this.confirmOpening(noted))) return undefined;
      if (error instanceof Problem) throw error;
      throw new Problem('payment_invalid', `The channel could not be opened: ${describe(error)}`, { cause: error });
    }
  }

  /** @param openTransaction null: this host did not send it */
  #note({ channelId, descriptor, cumulativeAmount, signature }: Open | Voucher, openTransaction: Hex | null) {
    const { chainId, escrow, token, payee } = this.network;
    return this.#options.channels.opening(
      {
        id: channelId,
        asset: assetId(chainId, token),
        payer: lower(descriptor.payer),
        payee,
        signer: signerOf(descriptor),
        descriptor: JSON.stringify(descriptor),
        escrow,
        chainId,
        openTransaction,
      },
      { cumulative: cumulativeAmount, signature },
    );
  }

  /**
   * A channel that the chain has and the books do not: they came back from a backup of before it was opened, or its payer
   * opened it alone.
   */
  async #adopt(payload: Open | Voucher): Promise<ChannelRow | undefined> {
    const { channels } = this.#options;
    const { channelId, descriptor, cumulativeAmount, signature } = payload;
    // Only its payer makes the host ask the chain.
    if (!this.#signed(channelId, cumulativeAmount, signature, signerOf(descriptor))) return undefined;
    const { deposit, settled, closeRequestedAt } = await this.chain.state(channelId).catch((cause: unknown) => {
      throw new Problem('payment_invalid', 'The network does not answer about the channel; try again.', { cause });
    });
    // What it had spent by its last settlement is not known.
    if (deposit < cumulativeAmount || settled !== 0n || closeRequestedAt !== 0) return undefined;
    await this.#note(payload, null);
    await channels.opened(channelId, atomic(deposit), null);
    this.#checked.note(channelId);
    return channels.byId(channelId);
  }

  async confirmOpening(channel: ChannelRow): Promise<boolean> {
    try {
      const state = await this.chain.state(channel.id);
      if (state.deposit === 0n) return false;
      await this.#options.channels.opened(channel.id, atomic(state.deposit), channel.openHash);
      return true;
    } catch {
      return false;
    }
  }

  /** @returns the channel, and the voucher where it is greater than the one before: it is for the caller to write */
  async #accept(
    payload: Voucher | Open,
    source: string | undefined,
    price: Money,
  ): Promise<{ channel: ChannelRow; voucher?: SignedAmount }> {
    const { channelId, cumulativeAmount, signature } = payload;
    const channel = await this.#usable(channelId, payload);
    const from = lower(source?.split(':').pop() ?? '');
    if (from !== channel.payer && from !== channel.signer)
      throw new Problem(
        'payment_invalid',
        'The credential’s source is not the payer of the channel; name the wallet that opened it.',
      );
    if (cumulativeAmount > channel.deposit)
      throw new Problem('payment_invalid', 'The voucher is over the deposit; top the channel up.', {
        extensions: { session: view(channel) },
      });
    if (!this.#signed(channelId, cumulativeAmount, signature, channel.signer as Address)) throw notSigned();
    if (cumulativeAmount <= channel.published)
      throw new Problem(
        'payment_invalid',
        'The chain has this voucher, where everybody can read it; sign a greater one.',
        {
          extensions: { session: view(channel) },
        },
      );
    const greater = cumulativeAmount > channel.voucher;
    const authorized = greater ? cumulativeAmount : channel.voucher;
    if (authorized - channel.captured - channel.reserved < price)
      throw new Problem('payment_invalid', 'The vouchers do not cover this call; sign a greater one.', {
        extensions: { session: view(channel) },
      });
    if (!greater) return { channel };
    const voucher = { cumulative: cumulativeAmount, signature };
    return { channel: { ...channel, voucher: cumulativeAmount, voucherSignature: signature }, voucher };
  }

  /**
   * An open channel that its payer is not closing. Asks the chain now and then.
   * @param payload by which one may be taken on that is not known
   */
  async #usable(id: string, payload?: Open | Voucher): Promise<ChannelRow> {
    const { channels } = this.#options;
    let channel = await channels.byId(id);
    if (!channel && payload) channel = await this.#adopt(payload);
    if (channel?.state === 'opening' && (await this.confirmOpening(channel))) channel = await channels.byId(id);
    if (channel?.state !== 'open')
      throw new Problem(
        'payment_invalid',
        channel ? 'The channel is closed; open a new one.' : 'The channel is not known here; open one.',
      );
    if (!this.#checked.isKnown(id)) channel = await this.refresh(channel);
    if (channel.closeRequestedAt !== 0)
      throw new Problem('payment_invalid', 'The channel is being closed by its payer; open a new one.');
    return channel;
  }

  /** Reads the channel's deposit and close request from the chain. */
  async refresh(channel: ChannelRow): Promise<ChannelRow> {
    const { channels } = this.#options;
    try {
      const state = await this.chain.state(channel.id);
      if (state.deposit === 0n) {
        // What this host closes itself is `closing` first, and the books hear of it from there.
        if (channel.state === 'open') await this.chain.ended(channel);
        throw new Problem('payment_invalid', 'The deposit of the channel is gone from the chain; open a new one.');
      }
      await channels.chainState(channel.id, {
        deposit: atomic(state.deposit),
        closeRequestedAt: state.closeRequestedAt,
        settled: state.settled,
      });
      this.#checked.note(channel.id);
      return (await channels.byId(channel.id)) ?? channel;
    } catch (error) {
      if (error instanceof Problem) throw error;
      throw new Problem('payment_invalid', 'The network does not answer about the channel; try again.', {
        cause: error,
      });
    }
  }

  async #topUp(payload: TopUp, credential: Credential.Credential): Promise<string> {
    const { channels, network } = this.#options;
    const channel = await this.#usable(payload.channelId);
    const client = network.getClient() as never;
    const topUp = {
      additionalDeposit: payload.additionalDeposit,
      chainId: this.network.chainId,
      challengeExpires: credential.challenge.expires,
      descriptor: payload.descriptor,
      escrowContract: this.network.escrow,
      expectedChannelId: payload.channelId,
      expectedCurrency: this.network.token,
      serializedTransaction: payload.transaction,
    };
    const failed = (error: unknown) =>
      new Problem('payment_invalid', `The top-up failed: ${describe(error)}`, { cause: error });
    try {
      const { transaction } = Chain.validateTopUpCredentialTransaction(topUp);
      if (lower(transaction.from ?? '') !== channel.payer) throw new Error('it is not signed by the channel’s payer');
    } catch (error) {
      throw failed(error);
    }
    const hash = keccak256(payload.transaction);
    const deposit = async () => {
      try {
        const { newDeposit } = await Chain.broadcastTopUpTransaction({ ...topUp, client });
        await channels.deposited(channel.id, atomic(newDeposit));
      } catch (error) {
        // The same top-up again: the chain has it already, and its deposit says it all.
        if (!(await this.#succeeded(hash, error))) throw failed(error);
        await this.refresh(channel);
      }
    };
    // A node may keep whoever sends a transaction a second time waiting, here for three minutes.
    const underWay = this.#deposits.get(hash) ?? deposit().finally(() => this.#deposits.delete(hash));
    this.#deposits.set(hash, underWay);
    await underWay;
    return sessionReceipt((await channels.byId(channel.id)) ?? channel, credential.challenge.id, hash);
  }

  /** @param error of sending it: where the node knows it from somebody else, maybe another of this host's, it is waited for */
  async #succeeded(hash: Hex, error: unknown): Promise<boolean> {
    const client = this.#options.network.getClient();
    const receipt = isKnown(error)
      ? waitForTransactionReceipt(client, { hash, timeout: CONFIRM_MS })
      : getTransactionReceipt(client, { hash });
    return receipt.then(
      ({ status }) => status === 'success',
      () => false,
    );
  }

  async #close(payload: Close, credential: Credential.Credential): Promise<string> {
    const { channels } = this.#options;
    const channel = await channels.byId(payload.channelId);
    if (!channel) throw new Problem('payment_invalid', 'The channel is not known here.');
    if (!this.#signed(channel.id, payload.cumulativeAmount, payload.signature, channel.signer as Address))
      throw new Problem('payment_invalid', 'The closing voucher’s signature is not valid.');
    const answer = (row: ChannelRow) =>
      sessionReceipt(
        { ...row, voucher: payload.cumulativeAmount },
        credential.challenge.id,
        row.closeHash ?? undefined,
      );
    if (channel.state === 'closed') return answer(channel);
    if (payload.cumulativeAmount < channel.captured)
      throw new Problem(
        'payment_invalid',
        `The closing voucher must be at least ${channel.captured}, which was spent.`,
      );
    const { deposit } = payload.cumulativeAmount > channel.deposit ? await this.refresh(channel) : channel;
    if (payload.cumulativeAmount > deposit)
      throw new Problem('payment_invalid', `The closing voucher must be at most ${deposit}, the channel’s deposit.`);
    return answer(await this.close(channel));
  }

  close(channel: ChannelRow): Promise<ChannelRow> {
    const { channels, calls } = this.#options;
    return closeChannel(channel, { channels, calls, chain: this.chain });
  }

  #signed(channelId: string, cumulative: Money, signature: string, signer: Address): boolean {
    return voucherSignedBy(this.network, { channelId, cumulative, signature }, signer);
  }
}

function notSigned(): Problem {
  return new Problem(
    'payment_invalid',
    'The voucher signature is not valid; sign it with the key that the channel names.',
  );
}

/** What a payer needs to know to go on with its channel. */
function view(channel: ChannelRow): Record<string, string> {
  return {
    channelId: channel.id,
    deposit: channel.deposit.toString(),
    acceptedCumulative: channel.voucher.toString(),
    spent: channel.captured.toString(),
  };
}
