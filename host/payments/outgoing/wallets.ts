/** Signs and sends what the host owes, from the wallets whose keys it holds. One transaction may pay many. */
import { type Account, encodeFunctionData, erc20Abi, type Hex, keccak256, TransactionReceiptNotFoundError } from 'viem';
import {
  getTransactionReceipt,
  prepareTransactionRequest,
  sendRawTransaction,
  sendRawTransactionSync,
  signTransaction,
} from 'viem/actions';
import { Actions } from 'viem/tempo';
import type { Money } from '../../shared/money.ts';
import { isExpired } from '../methods/chain/chain-time.ts';
import { isNonceUsed, isRefusal } from '../methods/chain/node-errors.ts';
import type { EvmLanes } from '../methods/x402/evm-lanes.ts';
import {
  type MppNetwork,
  mppNetworks,
  type Network,
  type SolanaNetwork,
  type X402Network,
  x402Networks,
} from '../network/types.ts';
import { assetId, lower, type SettleResult } from '../terms.ts';

/** Tempo's longest life of a transaction without a nonce is 30 s. */
const TEMPO_LIFE_S = 25;
/** How long a confirmation is waited for, ms. */
const CONFIRM_MS = 20_000;

export interface Transfer {
  recipient: string;
  amount: Money;
}

export interface SignedTransfer {
  raw: Hex;
  hash: Hex;
  /** ms; null: until its nonce is used. */
  validUntil: number | null;
}

export interface Wallet {
  asset: string;
  /** Most transfers in one transaction. */
  batch: number;
  canSign(source: string): boolean;
  /**
   * Signs, has the signed transaction noted, and sends it.
   * @throws when it could not be signed or noted; then nothing was sent
   */
  pay(source: string, transfers: Transfer[], note: (signed: SignedTransfer) => Promise<void>): Promise<SettleResult>;
  /** Sends it (again). Idempotent: the same signed transaction happens once. */
  send(signed: SignedTransfer): Promise<SettleResult>;
  /** The operator's own wallet for this asset. */
  operator: string;
}

/** @param lanes by which accounts take turns on a network of x402 */
export function openWallets(network: Network, lanes: (network: X402Network) => EvmLanes): Wallet[] {
  const accounts = new Map(
    Object.values(network.hostAccounts).map((account: Account) => [lower(account.address), account]),
  );
  const account = (source: string): Account => {
    const found = accounts.get(lower(source));
    if (!found) throw new Error('the host does not hold the key of that wallet');
    return found;
  };
  const canSign = (source: string) => accounts.has(lower(source));
  return [
    ...mppNetworks(network).map((mpp) => tempoWallet(mpp, account, canSign)),
    ...x402Networks(network).map((x402) => evmWallet(x402, lanes(x402), account, canSign)),
    ...(network.solana ?? []).map(solanaWallet),
  ];
}

/** What is paid on Solana goes straight to its payee, whose key the host does not have: nothing is sent from there. */
function solanaWallet({ network, token, recipient }: SolanaNetwork): Wallet {
  const cannot = async () => {
    throw new Error('nothing is sent on Solana');
  };
  return {
    asset: `${network}/${token}`,
    batch: 1,
    canSign: () => false,
    operator: recipient,
    pay: cannot,
    send: cannot,
  };
}

function tempoWallet(mpp: MppNetwork, account: (source: string) => Account, canSign: Wallet['canSign']): Wallet {
  async function send(signed: SignedTransfer): Promise<SettleResult> {
    const client = mpp.getClient();
    const expired = signed.validUntil !== null && (await isExpired(client, signed.validUntil));
    const found = await receiptOf(client, signed.hash);
    if (found) return found;
    if (expired) return { status: 'failed', reason: 'expired' };
    try {
      await sendRawTransactionSync(client, { serializedTransaction: signed.raw as never, timeout: 10_000 });
    } catch (error) {
      const mined = await receiptOf(client, signed.hash);
      if (mined) return mined;
      if (isRefusal(error)) return { status: 'failed', reason: 'the network refused the transfer' };
    }
    return (await receiptOf(client, signed.hash)) ?? { status: 'unknown', reason: 'not confirmed yet' };
  }

  return {
    asset: assetId(mpp.chain.id, mpp.currency),
    batch: 50,
    canSign,
    operator: lower(mpp.recipient),
    send,
    async pay(source, transfers, note) {
      const signer = account(source);
      const client = mpp.getClient(signer);
      const validBefore = Math.floor(Date.now() / 1000) + TEMPO_LIFE_S;
      const calls = transfers.map(({ recipient, amount }) =>
        Actions.token.transfer.call(client as never, { token: mpp.currency, to: recipient as Hex, amount }),
      );
      const request = { account: signer, calls, nonceKey: 'expiring', validBefore };
      const prepared = await prepareTransactionRequest(client, request as never);
      const raw = (await signTransaction(client, prepared as never)) as unknown as Hex;
      const signed = { raw, hash: keccak256(raw), validUntil: validBefore * 1000 };
      await note(signed);
      return send(signed);
    },
  };
}

function evmWallet(
  x402: X402Network,
  lanes: EvmLanes,
  account: (source: string) => Account,
  canSign: Wallet['canSign'],
): Wallet {
  async function send(signed: SignedTransfer): Promise<SettleResult> {
    const client = x402.getClient();
    const found = await receiptOf(client, signed.hash);
    if (found) return found;
    const confirmed = () => client.waitForTransactionReceipt({ hash: signed.hash, timeout: CONFIRM_MS });
    try {
      await sendRawTransaction(client, { serializedTransaction: signed.raw });
      await confirmed();
    } catch (error) {
      const isUsed = isNonceUsed(error);
      // By this very transfer, maybe: to sign it anew too early would be to pay twice.
      if (isUsed) await confirmed().catch(() => undefined);
      const mined = await receiptOf(client, signed.hash);
      if (mined) return mined;
      if (isUsed) return { status: 'failed', reason: 'another transaction took its nonce' };
      if (isRefusal(error)) return { status: 'failed', reason: 'the network refused the transfer' };
    }
    return (await receiptOf(client, signed.hash)) ?? { status: 'unknown', reason: 'not confirmed yet' };
  }

  return {
    asset: assetId(x402.chain.id, x402.token),
    batch: 1,
    canSign,
    operator: lower(x402.recipient),
    send,
    pay(source, [transfer], note) {
      if (!transfer) throw new Error('nothing to send');
      const args = [transfer.recipient as Hex, transfer.amount] as const;
      const data = encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args });
      // The account's turn lasts until it is sent: nobody else may take its nonce meanwhile.
      const notedAndSent = async ({ raw, hash }: { raw: Hex; hash: Hex }) => {
        const signed = { raw, hash, validUntil: null };
        await note(signed);
        return send(signed);
      };
      const call = { to: x402.token, data };
      return lanes.run(account(source), call, notedAndSent, ({ status }) => status !== 'failed');
    },
  };
}

async function receiptOf(
  client: Parameters<typeof getTransactionReceipt>[0],
  hash: Hex,
): Promise<SettleResult | undefined> {
  try {
    const receipt = await getTransactionReceipt(client, { hash });
    return receipt.status === 'success'
      ? { status: 'settled', reference: hash }
      : { status: 'failed', reason: 'the transfer was reverted' };
  } catch (error) {
    return error instanceof TransactionReceiptNotFoundError
      ? undefined
      : { status: 'unknown', reason: 'the network does not answer' };
  }
}
