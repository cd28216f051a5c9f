/**
 * Compares the books with the chain: every transaction that the ledger names, what the host's wallets hold, and what
 * channels have settled. Nothing is repaired here; a difference is a finding.
 */
import { type Hex, parseAbiItem, parseEventLogs } from 'viem';
import { getTransactionReceipt, readContract } from 'viem/actions';
import type { ChannelStore } from '../../registry/payments/channels.ts';
import { OutgoingStore } from '../../registry/payments/outgoing.ts';
import { PaymentReports } from '../../registry/payments/reports.ts';
import type { ChannelKeeper } from '../methods/channels/keeper.ts';
import { outcome } from '../methods/x402/solana/look-up.ts';
import type { Network } from '../network/types.ts';
import type { PaymentStore } from '../settlement/payment-store.ts';
import { lower } from '../terms.ts';
import type { ReconciliationReport } from '../types.ts';
import { type Asset, assetsOf, type Restored } from './restored.ts';

/** Tempo takes fees by a transfer to this address. */
const FEE_MANAGER = '0xfeec000000000000000000000000000000000000';

const TRANSFER = parseAbiItem('event Transfer(address indexed from, address indexed to, uint256 value)');
const BALANCE = parseAbiItem('function balanceOf(address) view returns (uint256)');

export interface ReconcileOptions {
  store: PaymentStore;
  channels: ChannelStore;
  network: Network;
  /** Of each network with channels. */
  keepers: readonly ChannelKeeper[];
  /** What moved money and is not in the books, because these came back from a backup. */
  restored: Restored;
  /** Balance of a collecting wallet that was there before the books began; noted once. */
  opening(asset: string, balance: () => Promise<bigint>): Promise<bigint>;
}

/** Net movement of every address in one transaction. */
type Movements = Map<string, bigint>;

export class Reconciler {
  readonly #options: ReconcileOptions;
  readonly #reports: PaymentReports;
  readonly #assets: Asset[];

  constructor(options: ReconcileOptions) {
    this.#options = options;
    this.#reports = new PaymentReports(options.store.books.db);
    this.#assets = assetsOf(options.network);
  }

  /** Notes what the collecting wallets hold before the first payment. */
  async noteOpening(): Promise<void> {
    const noted = await Promise.allSettled(
      this.#assets.map((asset) => this.#options.opening(asset.id, () => this.#balance(asset))),
    );
    // A network that is away keeps none of the others from it.
    for (const one of noted) if (one.status === 'rejected') throw one.reason;
  }

  async run(): Promise<ReconciliationReport> {
    const differences: ReconciliationReport['differences'] = [];
    let checked = 0;
    const fees = new Map<string, bigint>();
    const unknown = new Set(this.#options.restored.unknown.map(({ hash }) => hash));
    for (const asset of this.#assets) {
      const references = await this.#references(asset.id);
      let counted = 0n;
      for (const [reference, lines] of references) {
        checked += 1;
        const chain = await this.#movements(asset, reference as Hex);
        if (!chain) {
          differences.push({ what: 'transaction', ledger: 'happened', chain: 'not found', reference });
          continue;
        }
        // Of these the books know a part at most, and the collector's are counted as a whole.
        if (unknown.has(reference)) {
          counted += keptOf(lines);
          continue;
        }
        fees.set(asset.id, (fees.get(asset.id) ?? 0n) + chain.fee);
        differences.push(...compare(asset, reference, lines, chain.net));
      }
      const beside = this.#options.restored.net(asset.id) - counted;
      const difference = await this.#compareWallet(asset, (fees.get(asset.id) ?? 0n) - beside);
      if (difference) differences.push(difference);
    }
    for (const { network: chain, token, ask } of this.#options.network.solana ?? []) {
      // What a transaction there moves was checked before it was signed, and its signature is of that alone.
      for (const reference of (await this.#references(`${chain}/${token}`)).keys()) {
        checked += 1;
        if ((await outcome(ask, reference))?.status !== 'settled')
          differences.push({ what: 'transaction', ledger: 'happened', chain: 'not found', reference });
      }
    }
    differences.push(...(await this.#compareChannels()), ...(await this.#unbalanced()), ...(await this.#negative()));
    return { ok: differences.length === 0, checked, differences, accounts: await this.#accounts() };
  }

  async #references(asset: string): Promise<Map<string, { account: string; amount: bigint }[]>> {
    const rows = await this.#reports.onChain(asset);
    const byReference = new Map<string, { account: string; amount: bigint }[]>();
    for (const { reference, account, amount } of rows) {
      const key = reference ?? '';
      byReference.set(key, [...(byReference.get(key) ?? []), { account, amount }]);
    }
    return byReference;
  }

  async #movements(asset: Asset, hash: Hex): Promise<{ net: Movements; fee: bigint } | undefined> {
    try {
      const receipt = await getTransactionReceipt(asset.client, { hash });
      if (receipt.status !== 'success') return undefined;
      const net: Movements = new Map();
      let fee = 0n;
      for (const { address, args } of parseEventLogs({ abi: [TRANSFER], logs: receipt.logs })) {
        if (lower(address) !== lower(asset.token)) continue;
        const [from, to] = [lower(args.from), lower(args.to)];
        if (to === FEE_MANAGER || from === FEE_MANAGER) {
          if (from === asset.collector) fee += args.value;
          if (to === asset.collector) fee -= args.value;
          continue;
        }
        net.set(from, (net.get(from) ?? 0n) - args.value);
        net.set(to, (net.get(to) ?? 0n) + args.value);
      }
      return { net, fee };
    } catch {
      return undefined;
    }
  }

  async #balance(asset: Asset): Promise<bigint> {
    return readContract(asset.client, {
      address: asset.token,
      abi: [BALANCE],
      functionName: 'balanceOf',
      args: [asset.collector as Hex],
    });
  }

  /** What the wallet holds must be what it held at the beginning and what the books say it keeps for others. */
  async #compareWallet(asset: Asset, fees: bigint): Promise<ReconciliationReport['differences'][number] | undefined> {
    const opening = await this.#options.opening(asset.id, async () => 0n);
    const expected = opening + (await this.#reports.kept(asset.id)) - fees;
    const found = await this.#balance(asset);
    return found === expected
      ? undefined
      : { what: `balance of ${asset.collector} in ${asset.id}`, ledger: expected.toString(), chain: found.toString() };
  }

  async #compareChannels(): Promise<ReconciliationReport['differences']> {
    const { keepers, channels, store } = this.#options;
    const rows = await channels.inState('open', 'closed', 'failed');
    const unpaid = await new OutgoingStore(store.books).unpaidChannels();
    const differences: ReconciliationReport['differences'] = [];
    for (const row of rows) {
      if (row.state === 'failed') {
        if (unpaid.has(row.id))
          differences.push({
            what: `channel ${row.id}`,
            ledger: `captured ${row.captured}`,
            chain: `settled ${row.settled}, and the deposit is gone`,
          });
        continue;
      }
      const keeper = keepers.find(({ network }) => network.chainId === row.chainId && network.escrow === row.escrow);
      if (!keeper) continue;
      const state = await keeper.chain.state(row.id);
      if (row.state === 'closed') {
        const left = state.left ?? state.deposit;
        if (left !== 0n) differences.push({ what: `channel ${row.id}`, ledger: 'closed', chain: `open with ${left}` });
      } else if (state.settled !== row.settled) {
        differences.push({
          what: `channel ${row.id}`,
          ledger: `settled ${row.settled}`,
          chain: `settled ${state.settled}`,
        });
      }
    }
    return differences;
  }

  /** Only a damaged file has these. */
  async #unbalanced(): Promise<ReconciliationReport['differences']> {
    const rows = await this.#reports.unbalanced();
    return rows.map((row) => ({ what: `ledger transaction ${row.txn}`, ledger: String(row.sum), chain: '0' }));
  }

  async #negative(): Promise<ReconciliationReport['differences']> {
    const rows = await this.#reports.negative();
    return rows.map((row) => ({ what: `account ${row.account}`, ledger: String(row.sum), chain: 'at least 0' }));
  }

  async #accounts(): Promise<ReconciliationReport['accounts']> {
    const rows = await this.#reports.accounts();
    return rows.map((row) => ({ ...row, balance: String(row.balance) }));
  }
}

/** What of one transaction is somebody's claim on the host. */
function keptOf(lines: { account: string; amount: bigint }[]): bigint {
  return lines.reduce((sum, { account, amount }) => (account.startsWith('claim:') ? sum + amount : sum), 0n);
}

/** The books' movements of one transaction against the chain's. */
function compare(
  asset: Asset,
  reference: string,
  lines: { account: string; amount: bigint }[],
  chain: Movements,
): ReconciliationReport['differences'] {
  const differences: ReconciliationReport['differences'] = [];
  const received = new Map<string, bigint>();
  for (const { account, amount } of lines) {
    if (!account.startsWith('claim:') && amount > 0n) {
      const address = account.slice('wallet:'.length);
      received.set(address, (received.get(address) ?? 0n) + amount);
    }
  }
  // The collector may also be a recipient, such as of the operator's share.
  const collector = keptOf(lines) + (received.get(asset.collector) ?? 0n);
  const check = (what: string, expected: bigint, address: string) => {
    const found = chain.get(address) ?? 0n;
    if (found !== expected) differences.push({ what, ledger: expected.toString(), chain: found.toString(), reference });
  };
  if (collector !== 0n) check(`collected by ${asset.collector}`, collector, asset.collector);
  for (const [address, amount] of received) {
    if (address !== asset.collector) check(`received by ${address}`, amount, address);
  }
  return differences;
}
