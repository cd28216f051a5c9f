/**
 * What a host does not know that came back from a backup: money that it has sent since. The chain is asked once, before
 * anything is sent. What is due by the books and was sent by such a transaction is noted as sent; what may have been waits
 * for the operator. So an old state pays nothing twice.
 */
import type { Logger } from 'pino';
import { type Address, type Hex, parseAbiItem } from 'viem';
import { getBlock, getLogs, getTransactionCount } from 'viem/actions';
import type { Statement } from '../../registry/payments/books.ts';
import { PaymentReports } from '../../registry/payments/reports.ts';
import { type RestoredBooks, readRestored, savedRestored, type Unknown } from '../../registry/payments/restored.ts';
import type { OutgoingRow } from '../../registry/payments/schema.ts';
import { searchBlocks } from '../methods/chain/search-blocks.ts';
import { mppNetworks, type Network, x402Networks } from '../network/types.ts';
import type { PaymentStore } from '../settlement/payment-store.ts';
import { assetId, lower } from '../terms.ts';

const TRANSFER = parseAbiItem('event Transfer(address indexed from, address indexed to, uint256 value)');
/** The clock of a chain and that of the database may differ so much, ms. */
const CLOCK_SKEW_MS = 120_000;

export interface Asset {
  id: string;
  token: Hex;
  /** The host's wallet that collects in this asset. */
  collector: Address;
  client: Parameters<typeof getLogs>[0];
}

export function assetsOf(network: Network): Asset[] {
  const { settler, facilitator } = network.hostAccounts;
  return [
    ...mppNetworks(network).map((mpp) => ({
      id: assetId(mpp.chain.id, mpp.currency),
      token: mpp.currency as Hex,
      collector: lower(settler.address),
      client: mpp.getClient(),
    })),
    ...x402Networks(network).map((x402) => ({
      id: assetId(x402.chain.id, x402.token),
      token: x402.token as Hex,
      collector: lower(facilitator.address),
      client: x402.getClient(),
    })),
  ] as Asset[];
}

export interface Owed {
  row: OutgoingRow;
  payment: { createdAt: number; payTo: string };
  to: string;
}

export class Restored {
  readonly #store: PaymentStore;
  readonly #network: Network;
  readonly #log: Logger;
  #books: RestoredBooks | undefined;

  constructor({ store, network, log }: { store: PaymentStore; network: Network; log: Logger }) {
    this.#store = store;
    this.#network = network;
    this.#log = log;
  }

  /** Another node may have asked since. */
  async load(): Promise<void> {
    this.#books = await readRestored(this.#store.books.db);
  }

  get unknown(): readonly Unknown[] {
    return this.#books?.asked?.unknown ?? [];
  }

  /** Asks the chains, unless that was done. @throws where one does not answer, or is not done with what was sent */
  async look(): Promise<void> {
    const { since, line, asked } = this.#books ?? {};
    if (since === undefined || line === undefined || asked) return;
    const { books: kept } = this.#store;
    // What is paid from here on is in the books.
    const at = kept.now();
    const found = await Promise.all(assetsOf(this.#network).map((asset) => this.#unknown(asset, since, line)));
    const books = { since, line, asked: { at, unknown: found.flat(), resolved: [] } };
    await kept.write([savedRestored(kept.db, books)]);
    this.#books = books;
    this.#log.warn(
      { transactions: books.asked.unknown.length, since: new Date(since).toISOString() },
      'the books came back from a backup: money moved since by transactions that are not in them',
    );
  }

  /**
   * Which rows were sent by a transaction that the books did not have, and which may have been.
   * @param owed oldest first: so they were sent
   */
  judge(owed: readonly Owed[]) {
    const { asked } = this.#books ?? {};
    const sent: [row: OutgoingRow, hash: string][] = [];
    const doubtful: [row: OutgoingRow, hashes: string[]][] = [];
    if (!asked) return { sent, doubtful, statements: [] as Statement[] };
    const next = structuredClone(asked);
    for (const { row, payment, to } of owed) {
      if (payment.createdAt > asked.at || asked.resolved.includes(row.id)) continue;
      const waysTo = (recipient: string) =>
        next.unknown.flatMap(({ asset, hash, sent }) =>
          sent
            .filter((one) => asset === row.asset && one.from === lower(row.source) && one.to === lower(recipient))
            .map((one) => ({ hash, one })),
        );
      const ways = waysTo(to);
      const way = ways.find(({ one }) => BigInt(one.left) >= row.amount);
      if (way) {
        way.one.left = String(BigInt(way.one.left) - row.amount);
        sent.push([row, way.hash]);
        continue;
      }
      // What is given back by these books may have been paid out to its seller.
      if (row.kind === 'refund') ways.push(...waysTo(payment.payTo));
      if (ways.length > 0) doubtful.push([row, ways.map(({ hash }) => hash)]);
    }
    return { sent, doubtful, statements: sent.length > 0 ? [this.#kept(next)] : [] };
  }

  /** The operator says that this row is to be sent, whatever the chain knows. @returns the statements that note it */
  resolved(id: string): Statement[] {
    const { asked } = this.#books ?? {};
    return asked ? [this.#kept({ ...asked, resolved: [...asked.resolved, id] })] : [];
  }

  /** What the collecting wallet got, less what it gave, by transactions that the books had not. */
  net(asset: string): bigint {
    return this.unknown.reduce((sum, one) => (one.asset === asset ? sum + BigInt(one.net) : sum), 0n);
  }

  #kept(asked: NonNullable<RestoredBooks['asked']>): Statement {
    const { since = 0, line = 0 } = this.#books ?? {};
    const books = { since, line, asked };
    return savedRestored(this.#store.books.db, books);
  }

  async #unknown(asset: Asset, since: number, line: number): Promise<Unknown[]> {
    const { client, token, collector } = asset;
    const wallets = Object.values(this.#network.hostAccounts).map(({ address }) => lower(address));
    for (const address of new Set(wallets)) {
      const [pending, done] = await Promise.all(
        (['pending', 'latest'] as const).map((blockTag) => getTransactionCount(client, { address, blockTag })),
      );
      if (pending !== done) throw new Error(`transactions of ${address} are not in a block yet`);
    }
    const known = await new PaymentReports(this.#store.books.db).transactions(asset.id, line);
    // What happened before the newest of them is in the books, or was never theirs.
    let newest = 0n;
    const times = new Map<bigint, Promise<number>>();
    const timeOf = (blockNumber: bigint) => {
      const time =
        times.get(blockNumber) ?? getBlock(client, { blockNumber }).then((one) => Number(one.timestamp) * 1000);
      times.set(blockNumber, time);
      return time;
    };
    const byHash = new Map<string, Unknown & { block: bigint }>();
    const seen = new Set<string>();
    await searchBlocks(client as never, since - CLOCK_SKEW_MS, async (blocks) => {
      const found = await Promise.all(
        (['from', 'to'] as const).map((side) =>
          getLogs(client, { address: token, event: TRANSFER, args: { [side]: wallets }, strict: true, ...blocks }),
        ),
      );
      for (const { args, transactionHash: hash, logIndex, blockNumber } of found.flat()) {
        if (known.get(hash) && blockNumber > newest) newest = blockNumber;
        const id = `${hash} ${logIndex}`;
        if (seen.has(id) || known.has(hash) || (await timeOf(blockNumber)) < since - CLOCK_SKEW_MS) continue;
        seen.add(id);
        const [from, to] = [lower(args.from), lower(args.to)];
        const one = byHash.get(hash) ?? { asset: asset.id, hash, net: '0', sent: [], block: blockNumber };
        byHash.set(hash, one);
        if (from === to) continue;
        const net = (to === collector ? args.value : 0n) - (from === collector ? args.value : 0n);
        one.net = String(BigInt(one.net) + net);
        if (wallets.includes(from)) one.sent.push({ from, to, left: String(args.value) });
      }
      return undefined;
    });
    const later = [...byHash.values()].filter(({ block }) => block > newest);
    const inOrder = later.sort((a, b) => Number(a.block - b.block));
    return inOrder.map(({ block: _, ...one }) => one);
  }
}
