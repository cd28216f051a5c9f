/**
 * Finds a transaction by what its payer signed, where whoever paid the fee has not said by which signature it is known.
 * The chain takes the same message once, so that whatever has it is the payment.
 */
import { createHash } from 'node:crypto';
import type { SolanaNetwork } from '../../../network/types.ts';
import type { SettleResult } from '../../../terms.ts';
import { signedMessage } from '../credential.ts';
import { LONGEST_LIFE_MS, SILENT } from './look-up.ts';

/** Signatures of one page, as nodes limit it. */
const PAGE = 1_000;
/** Transactions that are read for one search; the next one goes on where it ended. */
const MOST_READ = 100;
/** Of which it is remembered what they are. */
const MOST_KNOWN = 10_000;
/** In base58. */
const SIGNATURE = /^[1-9A-HJ-NP-Za-km-z]{64,88}$/;
/** JSON-RPC's answer for a transaction of a version that x402 does not know either. */
const OTHER_VERSION = -32015;
/** A block's time and ours may differ so much, ms. */
const CLOCK_SKEW_MS = 60_000;

interface Sought {
  /** Whose `createdAt` is when it began. */
  payment: { createdAt: number };
  /** The account that the money comes from. */
  source: string;
  message: Uint8Array;
}

interface Listed {
  signature: string;
  /** Seconds. */
  blockTime: number | null;
}

interface Read {
  /** Of what was signed. */
  digest: string;
  result: SettleResult;
}

export class Search {
  readonly #ask: SolanaNetwork['ask'];
  /** By signature: what is confirmed does not change. */
  readonly #known = new Map<string, Read>();

  constructor(ask: SolanaNetwork['ask']) {
    this.#ask = ask;
  }

  /**
   * Looks among what moved the payer's money since the payment began.
   * @param first what is said to be its signature
   * @returns undefined: it is not there
   */
  async find({ payment, source, message }: Sought, first = ''): Promise<SettleResult | undefined> {
    const digest = digestOf(message);
    const earliest = payment.createdAt - CLOCK_SKEW_MS;
    const latest = payment.createdAt + LONGEST_LIFE_MS + CLOCK_SKEW_MS;
    try {
      const named = SIGNATURE.test(first) ? await this.#read(first).catch(() => undefined) : undefined;
      if (named?.digest === digest) return named.result;
      let left = MOST_READ;
      let before: string | undefined;
      for (;;) {
        const how = { limit: PAGE, commitment: 'confirmed', ...(before === undefined ? {} : { before }) };
        const page = await this.#ask<Listed[]>('getSignaturesForAddress', [source, how]);
        for (const { signature, blockTime } of page) {
          const at = blockTime === null ? payment.createdAt : blockTime * 1000;
          if (at < earliest) return undefined;
          if (at > latest) continue;
          if (!this.#known.has(signature) && left-- === 0)
            return { status: 'unknown', reason: 'the payer’s account has moved so much that it is still searched' };
          const read = await this.#read(signature);
          if (read?.digest === digest) return read.result;
          // The node lists it, and does not show it yet.
          if (!read) return SILENT;
        }
        if (page.length < PAGE) return undefined;
        before = page.at(-1)?.signature;
      }
    } catch {
      return SILENT;
    }
  }

  /** @returns undefined where it is not confirmed */
  async #read(signature: string): Promise<Read | undefined> {
    const known = this.#known.get(signature);
    if (known) return known;
    const how = { encoding: 'base64', commitment: 'confirmed', maxSupportedTransactionVersion: 0 };
    type Found = { transaction: [string, string]; meta: { err: unknown } | null } | null;
    let found: Found;
    try {
      found = await this.#ask<Found>('getTransaction', [signature, how]);
    } catch (error) {
      if ((error as { code?: unknown }).code !== OTHER_VERSION) throw error;
      return this.#remember(signature, { digest: '', result: SILENT });
    }
    if (!found?.meta) return undefined;
    return this.#remember(signature, {
      digest: digestOf(signedMessage(Buffer.from(found.transaction[0], 'base64'))),
      result:
        found.meta.err === null
          ? { status: 'settled', reference: signature }
          : { status: 'failed', reason: 'the transaction failed on the network' },
    });
  }

  #remember(signature: string, read: Read): Read {
    if (this.#known.size >= MOST_KNOWN) this.#known.delete(this.#known.keys().next().value ?? '');
    this.#known.set(signature, read);
    return read;
  }
}

function digestOf(message: Uint8Array): string {
  return createHash('sha256').update(message).digest('base64');
}
