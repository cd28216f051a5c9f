/**
 * The embedded chain as one thing that stays up: starts anvil, saves its state, and brings it back with all of its
 * state when it dies. Every transaction goes through `send`, one at a time, so that the journal is the whole truth.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import type { Logger } from 'pino';
import { type Hex, isHex, keccak256 } from 'viem';
import { Mutex } from '../shared/mutex.ts';
import { writePrivateFile } from '../shared/private-file.ts';
import { type Anvil, type Confinement, startAnvil } from './anvil.ts';
import { Journal } from './journal.ts';
import { type JsonRpcSocket, type RpcAnswer, RpcDisconnected } from './json-rpc-socket.ts';
import { authorizeWitnessed, witnessedKeyOf } from './key-authorization.ts';
import { allowDeposit, announceOpening, type ReserveDeposit, reserveCallOf } from './session-reserve.ts';

/** Longest wait for a sent transaction's block. Blocks come within a few milliseconds. */
const MINING_TIMEOUT_MS = 1_000;
/** A transaction without a block after this time may be waiting for an earlier one. */
const GAP_CHECK_MS = 8;
const SNAPSHOT_INTERVAL_MS = 1_000;
/** Clients let transactions expire 25 s ahead, and Tempo takes at most 30 s: a block may be this old for them. */
const STALE_MS = 2_000;
const RESTART_MIN_MS = 50;
const RESTART_MAX_MS = 5_000;

export interface EmbeddedChainOptions {
  chainId: number;
  /** Holds the state, the journal and the process id. */
  folder: string;
  socketPath: string;
  confinement: Confinement;
  /** Sets up a chain without any state. */
  setUp(chain: JsonRpcSocket): Promise<void>;
  log: Logger;
}

export class EmbeddedChain {
  readonly #options: EmbeddedChainOptions;
  readonly #stateFile: string;
  readonly #journal: Journal;
  readonly #turn = new Mutex();
  #anvil: Anvil | undefined;
  #timer: NodeJS.Timeout | undefined;
  #dirty = false;
  #closing = false;
  #nextSnapshotAt = 0;
  /** When the newest block was made; 0 when that is not known. */
  #minedAt = 0;
  #restarting: Promise<void> = Promise.resolve();

  private constructor(options: EmbeddedChainOptions) {
    this.#options = options;
    this.#stateFile = join(options.folder, 'state.json');
    this.#journal = new Journal(join(options.folder, 'journal.jsonl'));
  }

  /** @throws Problem `start_failed` */
  static async start(options: EmbeddedChainOptions): Promise<EmbeddedChain> {
    const chain = new EmbeddedChain(options);
    await chain.#turn.run(() => chain.#startAnvil());
    chain.#timer = setInterval(() => void chain.#saveIfDue(), SNAPSHOT_INTERVAL_MS).unref();
    return chain;
  }

  /** Process id of anvil; undefined while it is being restarted. */
  get pid(): number | undefined {
    return this.#anvil?.pid;
  }

  /** A reading call. Rejects with RpcDisconnected while anvil is down. */
  call(method: string, params: unknown): Promise<RpcAnswer> {
    return this.#anvil ? this.#anvil.rpc.call(method, params) : Promise.reject(new RpcDisconnected());
  }

  /**
   * Sends a signed transaction and waits for its block. Once it answers, the transaction outlives any crash.
   * @returns the chain's answer: the transaction's hash, or why it was refused
   */
  send(raw: string): Promise<RpcAnswer> {
    return this.#turn.run(async () => {
      const rpc = this.#rpc();
      if (!isHex(raw)) return { error: { code: -32602, message: 'expected a signed transaction in hexadecimal' } };
      const hash = keccak256(raw);
      if (await rpc.request('eth_getTransactionReceipt', [hash])) return { result: hash };
      const number = this.#journal.append({ raw, at: Date.now() });
      const answer = await execute(rpc, raw, this.#options.chainId);
      if ('error' in answer) this.#journal.refuse(number);
      else {
        this.#dirty = true;
        this.#minedAt = Date.now();
      }
      return answer;
    });
  }

  /**
   * Sees to it that the newest block is of now, as on a chain that is alive: simulations run at its time, and there a
   * transaction that expires (validBefore) is refused for being too far ahead.
   */
  async freshen(): Promise<void> {
    if (Date.now() - this.#minedAt < STALE_MS) return;
    await this.#turn.run(async () => {
      if (Date.now() - this.#minedAt < STALE_MS) return;
      await this.#rpc().request('evm_mine');
      this.#minedAt = Date.now();
    });
  }

  /** Lets the session reserve pull from this payer, as the precompile may. */
  allow(deposit: ReserveDeposit): Promise<void> {
    return this.#turn.run(() => allowDeposit(this.#rpc(), deposit));
  }

  /** Saves and ends anvil. Idempotent. */
  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    clearInterval(this.#timer);
    await this.#restarting;
    await this.#turn.run(async () => {
      const anvil = this.#anvil;
      if (anvil) {
        if (this.#dirty)
          await this.#save(anvil.rpc).catch((error) => this.#options.log.warn({ error }, 'state not saved'));
        this.#anvil = undefined;
        anvil.rpc.close();
        anvil.kill();
        await anvil.exited;
      }
      this.#journal.close();
    });
  }

  #rpc(): JsonRpcSocket {
    if (!this.#anvil) throw new RpcDisconnected();
    return this.#anvil.rpc;
  }

  async #startAnvil(): Promise<void> {
    const { chainId, socketPath, confinement, folder } = this.#options;
    const known = existsSync(this.#stateFile);
    const anvil = await startAnvil({
      chainId,
      socketPath,
      confinement,
      pidFile: join(folder, 'anvil.pid'),
      stateFile: known ? this.#stateFile : undefined,
    });
    try {
      if (known) await this.#replay(anvil.rpc);
      else {
        await this.#options.setUp(anvil.rpc);
        await this.#save(anvil.rpc);
      }
    } catch (error) {
      anvil.kill();
      throw error;
    }
    this.#anvil = anvil;
    void anvil.exited.then(() => this.#onExit(anvil));
  }

  /** Brings back what was sent after the last snapshot, each transaction in a block of the time it was sent. */
  async #replay(rpc: JsonRpcSocket): Promise<void> {
    const entries = this.#journal.read();
    for (const { raw, at } of entries) {
      if (await rpc.request('eth_getTransactionReceipt', [keccak256(raw)])) continue;
      const { timestamp } = await rpc.request<{ timestamp: Hex }>('eth_getBlockByNumber', ['latest', false]);
      await rpc.request('evm_setTime', [Math.max(Math.floor(at / 1000), Number(timestamp))]);
      const answer = await execute(rpc, raw, this.#options.chainId);
      if ('error' in answer) this.#options.log.warn({ reason: answer.error.message }, 'a transaction was not replayed');
    }
    // Replayed times shift anvil's clock; and the newest block must be of now, as on a chain that is alive.
    await rpc.request('evm_setTime', [Math.floor(Date.now() / 1000)]);
    await rpc.request('evm_mine');
    this.#dirty = entries.length > 0;
  }

  #onExit(anvil: Anvil): void {
    anvil.rpc.close();
    if (this.#anvil === anvil) this.#anvil = undefined;
    if (this.#closing) return;
    this.#options.log.warn('the local chain ended; starting it again');
    this.#restarting = this.#restart();
  }

  async #restart(): Promise<void> {
    for (let wait = RESTART_MIN_MS; !this.#closing; wait = Math.min(wait * 2, RESTART_MAX_MS)) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      try {
        await this.#turn.run(() => (this.#closing ? Promise.resolve() : this.#startAnvil()));
        return;
      } catch (error) {
        this.#options.log.error({ error }, 'the local chain did not start again');
      }
    }
  }

  async #saveIfDue(): Promise<void> {
    if (!this.#dirty || performance.now() < this.#nextSnapshotAt) return;
    await this.#turn
      .run(async () => {
        if (this.#anvil) await this.#save(this.#anvil.rpc);
      })
      .catch((error) => this.#options.log.warn({ error }, 'the state of the local chain was not saved'));
  }

  /** Only within a turn: no transaction may come between the dump and the emptied journal. */
  async #save(rpc: JsonRpcSocket): Promise<void> {
    const startedAt = performance.now();
    const dump = await rpc.request<Hex>('anvil_dumpState', []);
    await writePrivateFile(this.#stateFile, gunzipSync(Buffer.from(dump.slice(2), 'hex')));
    this.#journal.clear();
    this.#dirty = false;
    // A long chain takes long to save; the journal makes it safe to save it less often.
    this.#nextSnapshotAt = performance.now() + 20 * (performance.now() - startedAt);
  }
}

async function execute(rpc: JsonRpcSocket, raw: Hex, chainId: number): Promise<RpcAnswer> {
  const reserve = reserveCallOf(raw);
  if (reserve) {
    if (reserve.deposit) await allowDeposit(rpc, reserve.deposit);
    await announceOpening(rpc, reserve.openingHash);
  }
  const answer = await rpc.call('eth_sendRawTransaction', [raw]);
  if ('error' in answer) {
    const key = answer.error.message.includes('decode') ? witnessedKeyOf(raw, chainId) : undefined;
    if (!key) return answer;
    const authorized = await authorizeWitnessed(rpc, key);
    return 'error' in authorized ? authorized : { result: keccak256(raw) };
  }
  await mined(rpc, answer.result as Hex);
  return answer;
}

/** Waits for the block of a transaction that was just sent, unless an earlier one of its sender has yet to come. */
async function mined(rpc: JsonRpcSocket, hash: Hex): Promise<void> {
  const sentAt = performance.now();
  while (performance.now() < sentAt + MINING_TIMEOUT_MS) {
    if (await rpc.request('eth_getTransactionReceipt', [hash])) return;
    if (performance.now() > sentAt + GAP_CHECK_MS && (await waitsForAnother(rpc, hash))) return;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function waitsForAnother(rpc: JsonRpcSocket, hash: Hex): Promise<boolean> {
  const sent = await rpc.request<{ from: Hex; nonce: Hex } | null>('eth_getTransactionByHash', [hash]);
  if (!sent) return false;
  const next = await rpc.request<Hex>('eth_getTransactionCount', [sent.from, 'latest']);
  return BigInt(sent.nonce) > BigInt(next);
}
