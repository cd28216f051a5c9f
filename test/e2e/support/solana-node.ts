/**
 * A Solana node of the test's own: litesvm (the chain's virtual machine with its token programs, in this process) behind
 * as much of the JSON-RPC as x402's clients and the host ask for. USDC is at its address of devnet.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type Address,
  address,
  generateKeyPairSigner,
  getAddressEncoder,
  getBase58Decoder,
  getBase64Encoder,
  getCompiledTransactionMessageDecoder,
  getProgramDerivedAddress,
  getTransactionDecoder,
  type KeyPairSigner,
  lamports,
} from '@solana/kit';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import { FailedTransactionMetadata, LiteSVM } from 'litesvm';
import type { TestHost } from './host.ts';

export const DEVNET = 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1';
export const USDC = address('4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU');
const GENESIS = 'EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG';
export const TOKEN_PROGRAM = address('TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA');
const TOKEN_ACCOUNTS = address('ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL');
const SOL = 1_000_000_000n;

type Params = readonly unknown[];
/** What the node answers in place of the truth: nothing at all, an error, or a result. */
type Fault = 'hang' | { error: { code: number; message: string } } | { result: unknown } | undefined;

export interface SolanaNode {
  url: string;
  svm: LiteSVM;
  /** How often each method was called. */
  calls: Map<string, number>;
  /** Decides for each call; undefined: as it is. */
  fault: (method: string, params: Params) => Fault | Promise<Fault>;
  /** A wallet with this much USDC, micro-USD. */
  wallet(microUsd: bigint): Promise<KeyPairSigner>;
  /** Lets an address hold USDC. @returns its token account */
  holder(owner: Address, microUsd: bigint): Promise<Address>;
  held(owner: Address): Promise<bigint>;
  /**
   * Pays, and answers no transaction any more.
   * @param isTaken whether the chain has it
   * @returns once it was sent
   */
  silentAt(isTaken: boolean, pay: () => Promise<unknown>): Promise<void>;
  /** Takes a transaction as `sendTransaction` does. */
  send(params: Params): unknown;
  close(): Promise<void>;
}

const bytesOf = (of: Address) => Buffer.from(getAddressEncoder().encode(of));
const context = { slot: 1, apiVersion: '2.3.0' };

export async function tokenAccountOf(
  owner: Address,
  mint: Address = USDC,
  program: Address = TOKEN_PROGRAM,
): Promise<Address> {
  const seeds = [bytesOf(owner), bytesOf(program), bytesOf(mint)];
  const [found] = await getProgramDerivedAddress({ programAddress: TOKEN_ACCOUNTS, seeds });
  return found;
}

export async function startSolanaNode(): Promise<SolanaNode> {
  const svm = new LiteSVM();
  const put = (at: Address, data: Buffer) =>
    svm.setAccount({
      address: at,
      data,
      executable: false,
      lamports: lamports(SOL),
      programAddress: TOKEN_PROGRAM,
      space: BigInt(data.length),
    });
  // The layouts of the token program: a mint with 6 decimals and no authorities.
  const mint = Buffer.alloc(82);
  mint.writeBigUInt64LE(1_000_000_000_000n, 36);
  mint.writeUInt8(6, 44);
  mint.writeUInt8(1, 45);
  put(USDC, mint);

  const decode = (text: string) => getTransactionDecoder().decode(getBase64Encoder().encode(text));
  const failed = (result: unknown) => result instanceof FailedTransactionMetadata;
  const signatureOf = (text: string) => getBase58Decoder().decode(Buffer.from(text, 'base64').subarray(1, 65));
  const errorOf = (signature: string) =>
    failed(svm.getTransaction(signature as never)) ? { InstructionError: [2, { Custom: 1 }] } : null;
  const accountsOf = (text: string) => {
    const { messageBytes } = decode(text);
    return getCompiledTransactionMessageDecoder().decode(messageBytes).staticAccounts;
  };
  /** In order. */
  const taken: { signature: string; text: string; at: number }[] = [];
  const methods: Record<string, (params: Params) => unknown> = {
    getGenesisHash: () => GENESIS,
    getLatestBlockhash: () => ({ context, value: { blockhash: svm.latestBlockhash(), lastValidBlockHeight: 150 } }),
    isBlockhashValid: ([hash]) => ({ context, value: hash === svm.latestBlockhash() }),
    getMinimumBalanceForRentExemption: ([bytes]) => Number(svm.minimumBalanceForRentExemption(BigInt(bytes as number))),
    getBalance: ([of]) => ({ context, value: Number(svm.getBalance(of as Address) ?? 0) }),
    getAccountInfo([of]) {
      const found = svm.getAccount(of as Address);
      if (!found.exists) return { context, value: null };
      const data = [Buffer.from(found.data).toString('base64'), 'base64'];
      const { programAddress: owner, executable, lamports: held, space } = found;
      return {
        context,
        value: { data, owner, executable, lamports: Number(held), rentEpoch: 0, space: Number(space) },
      };
    },
    getTokenAccountBalance([of]) {
      const found = svm.getAccount(of as Address);
      if (!found.exists) throw Object.assign(new Error('Invalid param: could not find account'), { code: -32602 });
      const amount = Buffer.from(found.data).readBigUInt64LE(64).toString();
      return { context, value: { amount, decimals: 6, uiAmountString: amount } };
    },
    async getTokenAccountsByOwner([of]) {
      const amount = String(await node.held(of as Address));
      return { context, value: [{ account: { data: { parsed: { info: { tokenAmount: { amount } } } } } }] };
    },
    getFirstAvailableBlock: () => 0,
    getBlockTime: () => 0,
    simulateTransaction([text]) {
      svm.withSigverify(false);
      try {
        const result = svm.simulateTransaction(decode(text as string));
        const err = failed(result) ? String((result as FailedTransactionMetadata).err()) : null;
        return { context, value: { err, logs: [], unitsConsumed: 0 } };
      } finally {
        svm.withSigverify(true);
      }
    },
    sendTransaction([text]) {
      const signature = signatureOf(text as string);
      if (svm.getTransaction(signature as never)) return signature;
      const result = svm.sendTransaction(decode(text as string));
      if (svm.getTransaction(signature as never)) taken.push({ signature, text: text as string, at: Date.now() });
      if (!failed(result) || svm.getTransaction(signature as never)) return signature;
      const message = `Transaction simulation failed: ${String((result as FailedTransactionMetadata).err())}`;
      throw Object.assign(new Error(message), { code: -32002 });
    },
    getSignaturesForAddress([of, how]) {
      const { limit, before } = how as { limit: number; before?: string };
      const newest = taken.filter(({ text }) => accountsOf(text).includes(of as Address)).reverse();
      const from = newest.findIndex(({ signature }) => signature === before) + 1;
      return newest.slice(from, from + limit).map(({ signature, at }) => ({
        signature,
        blockTime: Math.floor(at / 1000),
        slot: 1,
        err: errorOf(signature),
      }));
    },
    getTransaction([signature]) {
      const found = taken.find((one) => one.signature === signature);
      if (!found) return null;
      return { slot: 1, transaction: [found.text, 'base64'], meta: { err: errorOf(signature as string) } };
    },
    getSignatureStatuses([signatures]) {
      const value = (signatures as string[]).map((signature) => {
        const found = svm.getTransaction(signature as never);
        if (!found) return null;
        const err = errorOf(signature);
        return { slot: 1, confirmations: null, err, confirmationStatus: 'finalized', status: err ?? { Ok: null } };
      });
      return { context, value };
    },
  };

  const calls = new Map<string, number>();
  const node = { svm, calls, fault: () => undefined } as unknown as SolanaNode;
  const server = createServer(async (request, response) => {
    const { id, method, params = [] } = JSON.parse(Buffer.concat(await Array.fromAsync(request)).toString());
    calls.set(method, (calls.get(method) ?? 0) + 1);
    const fault = await node.fault(method, params);
    if (fault === 'hang') return;
    let answer: object;
    try {
      const ask = methods[method];
      if (!ask) throw Object.assign(new Error(`Method not found: ${method}`), { code: -32601 });
      answer = fault ?? { result: await ask(params) };
    } catch (error) {
      const { code = -32603, message } = error as Error & { code?: number };
      answer = { error: { code, message } };
    }
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return Object.assign(node, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    send: (params: Params) => methods.sendTransaction?.(params),
    async silentAt(isTaken: boolean, pay: () => Promise<unknown>) {
      const sent = Promise.withResolvers<void>();
      node.fault = (method, params) => {
        if (method !== 'sendTransaction') return undefined;
        if (isTaken) node.send(params);
        sent.resolve();
        return 'hang';
      };
      void pay().catch(() => undefined);
      await sent.promise;
    },
    async wallet(microUsd: bigint) {
      const signer = await generateKeyPairSigner();
      await node.holder(signer.address, microUsd);
      return signer;
    },
    async holder(owner: Address, microUsd: bigint) {
      const at = await tokenAccountOf(owner);
      const data = Buffer.alloc(165);
      bytesOf(USDC).copy(data, 0);
      bytesOf(owner).copy(data, 32);
      data.writeBigUInt64LE(microUsd, 64);
      data.writeUInt8(1, 108);
      put(at, data);
      return at;
    },
    async held(owner: Address) {
      const found = svm.getAccount(await tokenAccountOf(owner));
      return found.exists ? Buffer.from(found.data).readBigUInt64LE(64) : 0n;
    },
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  });
}

/** Settings of a host that takes payments there. */
export function solanaFlags({ url }: Pick<SolanaNode, 'url'>, recipient: string): Record<string, string> {
  return {
    'payments-solana-network': 'solana-devnet',
    'payments-solana-rpc-url': url,
    'payments-solana-recipient': recipient,
  };
}

/** Gives the wallet of a host what fees take. */
export async function fillFeePayer({ svm }: Pick<SolanaNode, 'svm'>, host: Pick<TestHost, 'operator'>): Promise<void> {
  const { json } = await host.operator('GET', '/payments/wallets');
  const { wallets } = json as { wallets: { address: string; chain: string; coin?: string }[] };
  const feePayer = wallets.find(({ chain, coin }) => chain === 'solana-devnet' && coin !== undefined);
  svm.airdrop(address(feePayer?.address ?? ''), lamports(SOL));
}

/** A stock client, and the credential that it sent last. */
export function solanaClient(node: Pick<SolanaNode, 'url'>, signer: KeyPairSigner, send: typeof fetch = fetch) {
  const sent = { signature: '' };
  const recorded = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    sent.signature = request.headers.get('payment-signature') ?? sent.signature;
    return send(request);
  };
  const client = new x402Client().register(DEVNET, new ExactSvmScheme(signer, { rpcUrl: node.url }));
  return { sent, fetch: wrapFetchWithPayment(recorded as typeof fetch, client) };
}
