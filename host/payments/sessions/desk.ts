/**
 * Accepts session credentials: opens channels, takes vouchers (twice, late or out of order: a voucher authorizes, it
 * is not spent), tops up, and closes on the payer's wish. Chain calls happen only where the chain has to change.
 */
import type { Credential } from 'mppx';
import { Session } from 'mppx/tempo';
import type { Logger } from 'pino';
import { type Account, type Hex, keccak256, zeroAddress } from 'viem';
import { getBlockNumber, getContractEvents } from 'viem/actions';
import type { ChannelRow } from '../../registry/schema/payments.ts';
import type { Money } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import type { MppNetwork } from '../network/types.ts';
import { describe } from '../rails/tempo-charge.ts';
import { assetId, lower, payerDid, type Verified } from '../rails/terms.ts';
import { KeyedLock } from '../settlement/locks.ts';
import type { Address } from '../types.ts';
import { atomic, type ChannelStore, type SignedAmount } from './channels.ts';
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

const { Chain, escrowAbi, Protocol } = Session.Precompile;

/** How long the chain's word on a channel (is it being closed by its payer?) is believed, ms. */
const CHAIN_STATE_MS = 15_000;

/** Blocks that are searched for a closing whose hash was lost. */
const SEARCH_BLOCKS = 5_000n;

export interface SessionDeskOptions {
  network: MppNetwork;
  /** The wallet that channels pay, and that closes them. */
  settler: Account;
  channels: ChannelStore;
  log: Logger;
}

export class SessionDesk {
  readonly network: SessionNetwork;
  readonly #options: SessionDeskOptions;
  readonly #checkedAt = new Map<string, number>();
  readonly #locks = new KeyedLock();

  constructor(options: SessionDeskOptions) {
    this.#options = options;
    this.network = {
      chainId: options.network.chain.id,
      escrow: Protocol.tip20ChannelEscrow,
      token: options.network.currency,
      payee: lower(options.settler.address),
    };
  }

  read(credential: Credential.Credential): SessionPayload {
    return readSessionPayload(credential.payload, this.network);
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
        opened: opened !== undefined,
      };
    });
  }

  /**
   * Credentials that manage a channel without asking for content: top-up, close, and a bare open or voucher.
   * @returns the 204 with its receipt
   */
  async manage(credential: Credential.Credential): Promise<Response> {
    const payload = this.read(credential);
    const receipt = await this.#locks.run(payload.channelId, async () => {
      switch (payload.action) {
        case 'topUp':
          return this.#topUp(payload, credential);
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
    return new Response(null, {
      status: 204,
      headers: {
        'payment-receipt': receipt,
        'cache-control': 'no-store',
        'access-control-expose-headers': 'Payment-Receipt',
      },
    });
  }

  /** With the channel's lock held: for settlement and recovery. */
  exclusively<T>(id: string, work: () => Promise<T>): Promise<T> {
    return this.#locks.run(id, work);
  }

  /** @returns undefined when the channel exists already: then the credential counts as a voucher */
  async #open(payload: Open, credential: Credential.Credential, price: Money): Promise<ChannelRow | undefined> {
    const { channels, network } = this.#options;
    const known = await channels.byId(payload.channelId);
    if (known && known.state !== 'opening' && known.state !== 'failed') return undefined;
    if (known?.state === 'opening' && (await this.confirmOpening(known))) return channels.byId(payload.channelId);
    const { chainId, escrow, token, payee } = this.network;
    const { descriptor, cumulativeAmount, signature } = payload;
    const signer = signerOf(descriptor);
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
          if (!this.#signed(payload.channelId, cumulativeAmount, signature, signer))
            throw new Problem('payment_invalid', 'The voucher signature is not valid.');
          await channels.opening(
            {
              id: payload.channelId,
              asset: assetId(chainId, token),
              payer: lower(descriptor.payer),
              payee,
              signer,
              descriptor: JSON.stringify(descriptor),
              escrow,
              chainId,
              openTransaction: payload.transaction,
            },
            { cumulative: cumulativeAmount, signature },
          );
        },
      });
      await channels.opened(payload.channelId, atomic(result.state.deposit), result.txHash);
      this.#checkedAt.set(payload.channelId, Date.now());
      return channels.byId(payload.channelId);
    } catch (error) {
      const noted = await channels.byId(payload.channelId);
      if (noted && (await this.confirmOpening(noted))) return channels.byId(payload.channelId);
      if (error instanceof Problem) throw error;
      throw new Problem('payment_invalid', `The channel could not be opened: ${describe(error)}`, { cause: error });
    }
  }

  /** Asks the chain whether a noted deposit arrived. @returns whether the channel is open now */
  async confirmOpening(channel: ChannelRow): Promise<boolean> {
    try {
      const state = await this.#chainState(channel.id);
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
    const channel = await this.#usable(channelId);
    const from = lower(source?.split(':').pop() ?? '');
    if (from !== channel.payer && from !== channel.signer)
      throw new Problem('payment_invalid', 'The credential’s source is not the payer of the channel.');
    if (cumulativeAmount > channel.deposit)
      throw new Problem('payment_invalid', 'The voucher is over the deposit; top the channel up.', {
        extensions: { session: view(channel) },
      });
    if (!this.#signed(channelId, cumulativeAmount, signature, channel.signer as Address))
      throw new Problem('payment_invalid', 'The voucher signature is not valid.');
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

  /** An open channel that its payer is not closing. Asks the chain now and then. */
  async #usable(id: string): Promise<ChannelRow> {
    const { channels } = this.#options;
    let channel = await channels.byId(id);
    if (channel?.state === 'opening' && (await this.confirmOpening(channel))) channel = await channels.byId(id);
    if (channel?.state !== 'open')
      throw new Problem(
        'payment_invalid',
        channel ? 'The channel is closed; open a new one.' : 'The channel is not known here; open one.',
      );
    if (Date.now() - (this.#checkedAt.get(id) ?? 0) > CHAIN_STATE_MS) channel = await this.refresh(channel);
    if (channel.closeRequestedAt !== 0)
      throw new Problem('payment_invalid', 'The channel is being closed by its payer; open a new one.');
    return channel;
  }

  /** Reads the channel's deposit and close request from the chain. */
  async refresh(channel: ChannelRow): Promise<ChannelRow> {
    const { channels } = this.#options;
    try {
      const state = await this.#chainState(channel.id);
      await channels.chainState(channel.id, {
        deposit: atomic(state.deposit),
        settled: atomic(state.settled),
        closeRequestedAt: state.closeRequestedAt,
      });
      this.#checkedAt.set(channel.id, Date.now());
      return (await channels.byId(channel.id)) ?? channel;
    } catch (error) {
      throw new Problem('payment_invalid', 'The network does not answer about the channel; try again.', {
        cause: error,
      });
    }
  }

  async #topUp(payload: TopUp, credential: Credential.Credential): Promise<string> {
    const { channels, network } = this.#options;
    const channel = await this.#usable(payload.channelId);
    const before = await this.refresh(channel);
    try {
      const result = await Chain.broadcastTopUpTransaction({
        additionalDeposit: payload.additionalDeposit,
        chainId: this.network.chainId,
        client: network.getClient() as never,
        challengeExpires: credential.challenge.expires,
        descriptor: payload.descriptor,
        escrowContract: this.network.escrow,
        expectedChannelId: payload.channelId,
        expectedCurrency: this.network.token,
        serializedTransaction: payload.transaction,
      });
      await channels.chainState(channel.id, {
        deposit: atomic(result.newDeposit),
        settled: channel.settled,
        closeRequestedAt: 0,
      });
    } catch (error) {
      // The same top-up again: it is on the chain already, so the deposit says it all.
      const mined = await this.#mined(payload.transaction);
      const after = await this.refresh(channel);
      if (!mined && after.deposit <= before.deposit)
        throw new Problem('payment_invalid', `The top-up failed: ${describe(error)}`, { cause: error });
    }
    return sessionReceipt(
      (await channels.byId(channel.id)) ?? channel,
      credential.challenge.id,
      keccak256(payload.transaction),
    );
  }

  async #mined(transaction: Hex): Promise<boolean> {
    return Chain.waitForSuccessfulReceipt(this.#options.network.getClient() as never, keccak256(transaction)).then(
      () => true,
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
    if (channel.reserved > 0n)
      throw new Problem('in_progress', 'Calls on this channel are still at work; close it when they are answered.');
    if (payload.cumulativeAmount < channel.captured)
      throw new Problem(
        'payment_invalid',
        `The closing voucher must be at least ${channel.captured}, which was spent.`,
      );
    const voucher = { cumulative: payload.cumulativeAmount, signature: payload.signature };
    return answer(await this.close(channel, voucher));
  }

  /** Closes a channel on the chain: what was captured goes to the host, the rest back to the payer. */
  async close(channel: ChannelRow, given?: { cumulative: Money; signature: string }): Promise<ChannelRow> {
    const { channels, network, settler, log } = this.#options;
    // A close that was begun may be on the chain already: the process may have died before the books said so.
    if (channel.state === 'closing' && (await this.#chainState(channel.id)).deposit === 0n) {
      const hash = await this.lastHash(channel, 'ChannelClosed');
      if (!hash)
        throw new Problem('payment_pending', 'The channel is gone from the chain; its closing was not found yet.');
      await channels.settled(channel, channel.captured, hash, true);
      return (await channels.byId(channel.id)) ?? channel;
    }
    const voucher = given ?? { cumulative: channel.voucher, signature: channel.voucherSignature };
    await channels.closing(channel.id, given && given.cumulative >= channel.voucher ? given : undefined);
    try {
      const client = network.getClient(settler);
      const hash = await Chain.closeOnChain(
        client,
        JSON.parse(channel.descriptor),
        voucher.cumulative,
        channel.captured,
        voucher.signature as Hex,
        channel.escrow as Hex,
        { account: settler, candidateFeeTokens: [network.currency] },
      );
      await Chain.waitForSuccessfulReceipt(client as never, hash);
      await channels.settled(channel, channel.captured, hash, true);
      log.info({ channel: channel.id, captured: channel.captured.toString() }, 'channel closed');
    } catch (error) {
      log.warn({ err: error, channel: channel.id }, 'channel could not be closed yet');
      throw new Problem('payment_pending', 'The channel could not be closed now; it is tried again by itself.', {
        cause: error,
      });
    }
    return (await channels.byId(channel.id)) ?? channel;
  }

  /** Takes what was captured so far without closing. */
  async settle(channel: ChannelRow): Promise<void> {
    const { channels, network, settler } = this.#options;
    const voucher = await channels.settleable(channel);
    if (!voucher) return;
    const client = network.getClient(settler);
    const hash = await Chain.settleOnChain(
      client,
      JSON.parse(channel.descriptor),
      voucher.cumulative,
      voucher.signature as Hex,
      channel.escrow as Hex,
      { account: settler, candidateFeeTokens: [network.currency] },
    );
    await Chain.waitForSuccessfulReceipt(client as never, hash);
    await channels.settled(channel, voucher.cumulative, hash, false);
  }

  chainState(id: string) {
    return this.#chainState(id);
  }

  /** The last transaction that closed or settled a channel, found by its event. */
  async lastHash(channel: ChannelRow, eventName: 'ChannelClosed' | 'Settled'): Promise<string | undefined> {
    const client = this.#options.network.getClient();
    const latest = await getBlockNumber(client);
    const logs = await getContractEvents(client, {
      address: channel.escrow as Hex,
      abi: escrowAbi,
      eventName,
      args: { channelId: channel.id as Hex },
      fromBlock: latest > SEARCH_BLOCKS ? latest - SEARCH_BLOCKS : 0n,
    });
    return logs.at(-1)?.transactionHash ?? undefined;
  }

  #chainState(id: string) {
    return Chain.getChannelState(this.#options.network.getClient(), id as Hex, this.network.escrow);
  }

  #signed(channelId: string, cumulative: Money, signature: string, signer: Address): boolean {
    return voucherSignedBy(this.network, { channelId, cumulative, signature }, signer);
  }
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
