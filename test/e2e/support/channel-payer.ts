/** A payer who holds a session's channel by hand: any voucher, top-up or closing, as often and wherever the test wants. */
import { Challenge, Credential } from 'mppx';
import { tempo } from 'mppx/client';
import { Session } from 'mppx/tempo';
import { encodeFunctionData, type Hex } from 'viem';
import { prepareTransactionRequest, signTransaction } from 'viem/actions';
import { PATH_USD_ADDRESS } from '../../../host/local-network/contracts/index.ts';
import { account, chainClient, type Headers } from './callers.ts';
import type { LocalNetworkFile } from './host.ts';

const { Chain, escrowAbi, Protocol, Voucher } = Session.Precompile;
const escrow = Protocol.tip20ChannelEscrow;

type Payload = Record<string, unknown> & { descriptor: Parameters<typeof Chain.topUpOnChain>[1]; channelId: Hex };

export class ChannelPayer {
  readonly #network: LocalNetworkFile;
  readonly #index: number;
  readonly #url: string;
  readonly #sender: typeof fetch;
  #opening: Payload | undefined;

  /** @param url of a metered route @param sender what challenges are asked for with */
  constructor(network: LocalNetworkFile, index: number, url: string, sender: typeof fetch) {
    this.#network = network;
    this.#index = index;
    this.#url = url;
    this.#sender = sender;
  }

  get id(): Hex {
    return this.#channel.channelId;
  }

  /** A stock client deposits; what it would pay its first call with is kept back. */
  async open(): Promise<Headers> {
    const sent = Promise.withResolvers<string>();
    const keepsBack = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
      const request = new Request(input, init);
      const authorization = request.headers.get('authorization');
      if (authorization === null) return this.#sender(request);
      sent.resolve(authorization);
      return new Promise(() => {});
    };
    const client = () => chainClient(this.#network) as never;
    const manager = tempo.session.manager({
      account: account(this.#network, this.#index),
      getClient: client,
      maxDeposit: '5',
      fetch: keepsBack as typeof fetch,
    });
    manager.fetch(this.#url).catch(sent.reject);
    const authorization = await sent.promise;
    this.#opening = Credential.deserialize<Payload>(authorization).payload;
    return { authorization };
  }

  /** Another challenge for each credential. @param cumulative micro-USD */
  async voucher(cumulative: number): Promise<Headers> {
    return this.#credential({ action: 'voucher', ...(await this.#signed(cumulative)) });
  }

  async close(cumulative: number): Promise<Headers> {
    return this.#credential({ action: 'close', ...(await this.#signed(cumulative)) });
  }

  async topUp(additionalDeposit: number): Promise<Headers> {
    const { descriptor } = this.#channel;
    const [client, payer] = [chainClient(this.#network), account(this.#network, this.#index)];
    const args = [descriptor, BigInt(additionalDeposit)] as const;
    const request = await prepareTransactionRequest(client, {
      account: payer,
      calls: [{ to: escrow, data: encodeFunctionData({ abi: escrowAbi, functionName: 'topUp', args }) }],
      feeToken: PATH_USD_ADDRESS,
    } as never);
    const transaction = await signTransaction(client, { ...(request as object), account: payer } as never);
    return this.#credential({
      action: 'topUp',
      type: 'transaction',
      transaction,
      additionalDeposit: String(additionalDeposit),
    });
  }

  get #channel(): Payload {
    if (!this.#opening) throw new Error('the channel is not open');
    return this.#opening;
  }

  async #signed(cumulative: number) {
    const voucher = { channelId: this.id, cumulativeAmount: BigInt(cumulative) };
    const payer = account(this.#network, this.#index);
    const client = { ...chainClient(this.#network), account: payer };
    const signature = await Voucher.signVoucher(client as never, payer, voucher, escrow, this.#network.chainId);
    return { cumulativeAmount: String(cumulative), signature };
  }

  async #credential(payload: object): Promise<Headers> {
    const unpaid = await this.#sender(this.#url);
    const challenge = Challenge.fromResponseList(unpaid).find(({ intent }) => intent === 'session');
    const source = `did:pkh:eip155:${this.#network.chainId}:${account(this.#network, this.#index).address}`;
    const { channelId, descriptor } = this.#channel;
    const credential = { challenge, payload: { channelId, descriptor, ...payload }, source };
    return { authorization: Credential.serialize(credential as never) };
  }
}
