/**
 * Takes vouchers of x402's `batch-settlement`: opens channels, tops them up, gives back what is left. A channel has one
 * call at a time, whose voucher goes on from what the channel has spent: that is how clients of x402 count.
 */
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { BATCH_SETTLEMENT_ADDRESS, toFacilitatorEvmSigner } from '@x402/evm';
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/facilitator';
import { zeroAddress } from 'viem';
import { atomic, type SignedAmount } from '../../../../registry/payments/channels.ts';
import type { ChannelRow } from '../../../../registry/payments/schema.ts';
import type { Clock } from '../../../../shared/clock.ts';
import type { Money } from '../../../../shared/money.ts';
import { KeyedLock } from '../../../../shared/mutex.ts';
import { Problem } from '../../../../shared/problem.ts';
import { assetId, lower, payerDid, type Verified } from '../../../terms.ts';
import type { Address } from '../../../types.ts';
import type { ChannelCalls } from '../../channels/calls.ts';
import { CheckedChannels } from '../../channels/checked.ts';
import { type ChainState, type ChannelKeeper, closeChannel } from '../../channels/keeper.ts';
import { type BatchPayload, batchPayloadOf, type X402Credential } from '../credential.ts';
import type { Gas } from '../gas.ts';
import type { X402Offer } from '../offer.ts';
import { reason } from '../remote-facilitator.ts';
import { fault, outdated, refundAnswer } from './answers.ts';
import { BatchChain, type BatchChainOptions } from './chain.ts';
import { BatchVouchers, inLowerCase } from './voucher.ts';

/** How long a payer who closes a channel by itself waits: the time in which the host must take what it is owed, s. */
export const WITHDRAW_DELAY_S = 86_400;
/** How long the chain's word on a channel (does its payer withdraw?) is believed: a small part of that delay, ms. */
const CHAIN_STATE_MS = 600_000;
/** How long a call waits for the one before on the same channel, ms. */
const WAIT_MS = 30_000;
/** What the host sends for a channel: its deposit, what it claims, what it gives back. */
const TRANSACTIONS = 3;
/** Moving money is worth it where it costs at most a twentieth. A deposit may be half of what is asked for: gas changes. */
const WORTH = 20n;
const LEAST_DEPOSIT = 10n;
/** Deposits are asked for that cover so many calls. */
const SUGGESTED_CALLS = 10n;
/** Below 2^53, so that the registry's integers stay exact. */
const MAX_DEPOSIT = 10n ** 15n;

export interface BatchKeeperOptions extends BatchChainOptions {
  /** Of all networks. */
  calls: ChannelCalls;
  gas: Gas;
  clock: Clock;
}

export class BatchKeeper implements ChannelKeeper {
  readonly network: { chainId: number; escrow: string };
  readonly chain: BatchChain;
  /** The host's wallet that channels pay, and that says what it takes. */
  readonly payee: Address;
  readonly asset: string;
  readonly #options: BatchKeeperOptions;
  readonly #vouchers: BatchVouchers;
  readonly #deposits: BatchSettlementEvmScheme;
  readonly #checked = new CheckedChannels(CHAIN_STATE_MS);
  readonly #locks = new KeyedLock();
  /** Channels of payloads that were checked. */
  readonly #ids = new WeakMap<BatchPayload, string>();

  constructor(options: BatchKeeperOptions) {
    const { network, receiver, lanes } = options;
    this.#options = options;
    this.chain = new BatchChain(options);
    this.network = { chainId: network.chain.id, escrow: BATCH_SETTLEMENT_ADDRESS };
    this.payee = lower(receiver.address);
    this.asset = assetId(network.chain.id, network.token);
    this.#vouchers = new BatchVouchers(Number(network.network.slice('eip155:'.length)));
    this.#deposits = new BatchSettlementEvmScheme(
      toFacilitatorEvmSigner({
        ...network.getClient(receiver),
        ...lanes.signer(receiver),
        address: receiver.address,
      } as never),
    );
  }

  /** CAIP-2 name of the network that payers sign for. */
  get name(): X402Offer['requirements']['network'] {
    return this.#options.network.network;
  }

  /** `extra` of offers. */
  extra(price: Money): Record<string, unknown> {
    const worth = this.#cost * WORTH;
    const several = price * SUGGESTED_CALLS;
    return {
      receiverAuthorizer: this.#options.receiver.address,
      withdrawDelay: WITHDRAW_DELAY_S,
      minDeposit: (several > worth ? several : worth).toString(),
    };
  }

  isKnown(id: string): boolean {
    return this.#checked.isKnown(id);
  }

  isWorth(amount: Money): boolean {
    return amount >= this.#cost * WORTH;
  }

  get #cost(): bigint {
    return this.#options.gas.costOf(this.network.chainId);
  }

  /** Waits for the calls before on its channel. @returns what ends its turn. @throws Problem `payment_invalid` */
  async turn(presented: X402Credential): Promise<() => void> {
    const id = this.#channelOf(batchPayloadOf(presented));
    await this.#options.calls.over(id, WAIT_MS);
    return this.#locks.acquire(id);
  }

  /** In its turn: checks a voucher that wants to be served, and takes its deposit. @throws Problem `payment_invalid` */
  async authorize(presented: X402Credential, offer: X402Offer): Promise<Verified> {
    const payload = batchPayloadOf(presented);
    const { channelConfig, voucher } = payload;
    if (payload.type === 'refund') throw new Problem('payment_invalid', 'A refund does not pay for a call.');
    if ((payload.type === 'deposit') !== (payload.deposit !== undefined))
      throw new Problem('payment_invalid', 'A payload of the type deposit, and no other, holds one.');
    const id = this.#channelOf(payload);
    const price = atomic(BigInt(offer.requirements.amount));
    const most = atomic(BigInt(voucher.maxClaimableAmount));
    const known = await this.#known(id);
    if (most !== (known?.captured ?? 0n) + price) throw outdated(this.name, known);
    // Of a channel that was closed and filled again more may have been signed than was spent.
    if (known && most <= known.published)
      throw new Problem(
        'payment_invalid',
        'The chain has this voucher, where everybody can read it; open a channel with another salt.',
      );
    if (payload.deposit) await this.#deposit(id, known, presented, offer);
    else if (known?.state !== 'open') await this.#adopt(id, known, payload, offer);
    const channel = await this.#usable(id);
    // Another node may have been at work on it meanwhile.
    if (most !== channel.captured + price || most > channel.deposit) throw outdated(this.name, channel);
    if (channel.reserved > 0n)
      throw fault(this.name, 'busy', 'Another call on this channel is still at work; try again when it has ended.');
    return {
      ...(most > channel.voucher ? { voucher: { cumulative: most, signature: voucher.signature } } : {}),
      payer: { address: lower(channelConfig.payer), did: payerDid(channel.chainId, channelConfig.payer) },
      settleBefore: Number.POSITIVE_INFINITY,
      channel: id,
      opened: payload.deposit !== undefined,
    };
  }

  /** What the payer of a voucher that was used before has to know to sign another one. */
  async usedUp(presented: X402Credential): Promise<Problem> {
    return outdated(this.name, await this.#options.channels.byId(this.#channelOf(batchPayloadOf(presented))));
  }

  /** Gives back what is left in a channel, on its payer's wish. @returns undefined for what is no such wish */
  async refund(presented: X402Credential): Promise<Response | undefined> {
    const payload = batchPayloadOf(presented);
    if (payload.type !== 'refund') return undefined;
    const { channels } = this.#options;
    const id = this.#channelOf(payload);
    return this.#locks.run(id, async () => {
      const channel = await channels.byId(id);
      if (!channel || BigInt(payload.voucher.maxClaimableAmount) !== channel.captured)
        throw outdated(this.name, channel);
      const rest = channel.deposit - channel.captured;
      if (channel.state === 'closed' && channel.closeHash) return refundAnswer(this.name, channel, rest);
      if (channel.state === 'failed' || rest <= 0n)
        throw fault(this.name, 'noRest', 'Nothing is left in this channel.');
      if (payload.amount !== undefined && BigInt(payload.amount) < rest)
        throw fault(this.name, 'partOfRest', `Ask for all that is left, which is ${rest}: parts are not sent back.`);
      if (channel.reserved > 0n)
        throw fault(this.name, 'busy', 'A call on this channel is still at work; try again when it has ended.');
      return refundAnswer(this.name, await this.close(channel), rest);
    });
  }

  exclusively<T>(id: string, work: () => Promise<T>): Promise<T> {
    return this.#locks.run(id, work);
  }

  close(channel: ChannelRow): Promise<ChannelRow> {
    const { channels, calls } = this.#options;
    return closeChannel(channel, { channels, calls, chain: this.chain });
  }

  async confirmOpening(channel: ChannelRow): Promise<boolean> {
    try {
      const { deposit, settled, closeRequestedAt } = await this.chain.state(channel.id);
      if (deposit <= settled || deposit < channel.voucher || closeRequestedAt !== 0) return false;
      await this.#options.channels.opened(channel.id, atomic(deposit), channel.openHash);
      this.#checked.note(channel.id);
      return true;
    } catch {
      return false;
    }
  }

  async refresh(channel: ChannelRow): Promise<ChannelRow> {
    const { channels, clock } = this.#options;
    const { id } = channel;
    const { deposit, settled, closeRequestedAt } = await this.#state(id);
    // Who took something back has closed the channel.
    const isLess = deposit < channel.deposit;
    // A node may lag behind, and a chain may forget its last blocks: neither is a reason to close, or to go on.
    if (isLess && settled <= channel.settled && !(await this.chain.isWithdrawn(channel)))
      throw new Problem('payment_invalid', 'The network does not know of this channel’s deposit; try again later.');
    await channels.chainState(id, {
      deposit: atomic(deposit),
      closeRequestedAt: isLess ? closeRequestedAt || Math.floor(clock.now() / 1000) : closeRequestedAt,
      settled,
    });
    this.#checked.note(id);
    return (await channels.byId(id)) ?? channel;
  }

  /**
   * Checks all of a payload that neither the chain nor the books know more of.
   * @returns the id of its channel
   */
  #channelOf(payload: BatchPayload): string {
    const checked = this.#ids.get(payload);
    if (checked !== undefined) return checked;
    const { channelConfig: config, voucher } = payload;
    const id = this.#vouchers.channelId(config);
    if (id !== lower(voucher.channelId))
      throw new Problem('payment_invalid', 'The configuration of the channel does not match its id.');
    if (
      lower(config.receiver) !== this.payee ||
      lower(config.receiverAuthorizer) !== this.payee ||
      lower(config.token) !== lower(this.#options.network.token) ||
      config.withdrawDelay < WITHDRAW_DELAY_S
    )
      throw new Problem('payment_invalid', 'The channel is not as it was offered; open one that is.');
    // What a contract has signed it may take back before the chain has seen it.
    if (config.payerAuthorizer === zeroAddress)
      throw new Problem('payment_invalid', 'Vouchers are signed by a key here: name one as payerAuthorizer.');
    if (!this.#vouchers.isSignedBy(voucher, config.payerAuthorizer))
      throw new Problem('payment_invalid', 'The voucher signature is not valid; sign it with the payerAuthorizer.');
    this.#ids.set(payload, id);
    return id;
  }

  /** The channel, where it may go on. */
  async #known(id: string): Promise<ChannelRow | undefined> {
    const { channels } = this.#options;
    const channel = await channels.byId(id);
    if (channel?.state === 'closing')
      throw fault(this.name, 'busy', 'The channel is being closed; try again in a moment.');
    if (channel?.state === 'failed' && channel.captured > channel.settled)
      throw new Problem('payment_invalid', 'The payer took back what this channel owes; open one with another salt.');
    return channel?.state === 'opening' && (await this.confirmOpening(channel)) ? channels.byId(id) : channel;
  }

  async #usable(id: string): Promise<ChannelRow> {
    let channel = await this.#options.channels.byId(id);
    if (channel?.state !== 'open') throw outdated(this.name, channel);
    if (!this.#checked.isKnown(id)) channel = await this.refresh(channel);
    if (channel.closeRequestedAt !== 0) throw withdrawn();
    return channel;
  }

  async #state(id: string): Promise<ChainState> {
    try {
      return await this.chain.state(id);
    } catch (error) {
      throw new Problem('payment_invalid', 'The network does not answer about the channel; try again.', {
        cause: error,
      });
    }
  }

  /** A channel that holds something of which the books do not know: its payer filled it, or a deposit came late. */
  async #adopt(id: string, known: ChannelRow | undefined, payload: BatchPayload, { tenant }: X402Offer): Promise<void> {
    const state = await this.#state(id);
    const covers = state.deposit > state.settled && state.deposit >= BigInt(payload.voucher.maxClaimableAmount);
    if (!covers) throw outdated(this.name, known);
    this.#assertFresh(known, state);
    assertNamed(known, payload);
    this.#assertBudget(tenant);
    await this.#note(id, known, payload);
    await this.#noteGas(tenant, TRANSACTIONS - 1);
    await this.#options.channels.opened(id, atomic(state.deposit), null);
    this.#checked.note(id);
  }

  async #deposit(
    id: string,
    known: ChannelRow | undefined,
    presented: X402Credential,
    { requirements, tenant }: X402Offer,
  ): Promise<void> {
    const payload = batchPayloadOf(presented);
    const amount = BigInt(payload.deposit?.amount ?? 0);
    const before = await this.#state(id);
    this.#assertFresh(known, before);
    if (amount < this.#cost * LEAST_DEPOSIT)
      throw fault(this.name, 'smallDeposit', 'The deposit is too small to be worth its fees.');
    if (before.deposit + amount >= MAX_DEPOSIT)
      throw new Problem('payment_invalid', 'The deposit is more than a channel may hold here.');
    const sent = { ...presented.payload, x402Version: 2 } as unknown as PaymentPayload;
    const required = requirements as PaymentRequirements;
    const arrived = async () => {
      const { deposit } = await this.#state(id);
      return deposit >= BigInt(payload.voucher.maxClaimableAmount) && deposit > before.settled ? deposit : undefined;
    };
    const verified = await this.#deposits.verify(sent, required).catch(() => undefined);
    if (!verified?.isValid) {
      // It may have arrived already, when it was shown before.
      const deposit = await arrived();
      if (deposit === undefined) throw notTaken(verified?.invalidReason);
      assertNamed(known, payload);
      return this.#opened(id, known, payload, deposit, null);
    }
    this.#assertBudget(tenant);
    await this.#note(id, known, payload);
    await this.#noteGas(tenant, TRANSACTIONS);
    const result = await this.#deposits.settle(sent, required).catch(() => undefined);
    if (result?.success) {
      const { channelState } = (result.extra ?? {}) as { channelState?: { balance?: string } };
      const deposit = BigInt(channelState?.balance ?? before.deposit + amount);
      return this.#opened(id, known, payload, deposit, result.transaction);
    }
    const deposit = await arrived();
    if (deposit === undefined) throw notTaken(result?.errorReason);
    return this.#opened(id, known, payload, deposit, result?.transaction || null);

    function notTaken(why: string | undefined): Problem {
      return new Problem('payment_invalid', `The deposit was not taken: ${reason(why)}.`);
    }
  }

  /** @throws Problem `payment_invalid` where what channels of this seller cost the host today is used up */
  #assertBudget(tenant: string | undefined): void {
    if (!this.#options.gas.hasBudget(channelsOf(tenant), this.network.chainId))
      throw new Problem('payment_invalid', 'No more deposits are taken for this seller today; pay by another method.');
  }

  #noteGas(tenant: string | undefined, transactions: number): Promise<void> {
    return this.#options.gas.note(channelsOf(tenant) ?? null, this.network.chainId, transactions);
  }

  #assertFresh(known: ChannelRow | undefined, { settled, closeRequestedAt }: ChainState): void {
    // What was begun before could be withdrawn at once.
    if (closeRequestedAt !== 0) throw withdrawn();
    if (!known && settled !== 0n)
      throw new Problem(
        'payment_invalid',
        'What this channel has spent is not known here; open one with another salt.',
      );
  }

  /** Noted before the deposit is sent, so that it is never forgotten. */
  async #note(id: string, known: ChannelRow | undefined, payload: BatchPayload): Promise<void> {
    const { channels } = this.#options;
    const { channelConfig: config, voucher } = payload;
    const signed: SignedAmount = {
      cumulative: atomic(BigInt(voucher.maxClaimableAmount)),
      signature: voucher.signature,
    };
    if (known?.state === 'open') return;
    if (known) return channels.reopening(id, signed);
    await channels.opening(
      {
        id,
        asset: this.asset,
        payer: lower(config.payer),
        payee: this.payee,
        signer: lower(config.payerAuthorizer),
        descriptor: JSON.stringify(inLowerCase(config)),
        escrow: this.network.escrow,
        chainId: this.network.chainId,
        openTransaction: null,
      },
      signed,
    );
  }

  async #opened(
    id: string,
    known: ChannelRow | undefined,
    payload: BatchPayload,
    deposit: bigint,
    transaction: string | null,
  ): Promise<void> {
    const { channels } = this.#options;
    await this.#note(id, known, payload);
    if (known?.state === 'open') await channels.deposited(id, atomic(deposit), transaction);
    else await channels.opened(id, atomic(deposit), transaction);
    this.#checked.note(id);
  }
}

/** Deposits go back, so they cost their payer nothing: they may not use up what a seller's other payments need. */
function channelsOf(tenant: string | undefined): string | undefined {
  return tenant && `${tenant} channels`;
}

/**
 * Anybody may pay into a channel that is in another wallet's name. Whose it is says the wallet, by signing the vouchers
 * itself, or the deposit that names who does.
 */
function assertNamed(known: ChannelRow | undefined, { channelConfig: { payer, payerAuthorizer } }: BatchPayload): void {
  if (!known && lower(payer) !== lower(payerAuthorizer))
    throw new Problem(
      'payment_invalid',
      'Deposit here, or sign with the payer’s key: it has not named this payerAuthorizer.',
    );
}

function withdrawn(): Problem {
  return new Problem(
    'payment_invalid',
    'The payer of this channel withdraws its deposit; take it back, or open a channel with another salt.',
  );
}
