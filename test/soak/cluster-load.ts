/** Load on several nodes: registers of KV and R2, counters in objects, a bank, and paid calls, all of it by any node. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Fetch } from '../e2e/support/callers.ts';
import { type Answer, call } from './call.ts';
import { BANK_TOTAL } from './cluster-handler.ts';
import { contradiction, type Operation } from './registers.ts';

const KINDS = ['kv', 'r2'];
const KEYS = 4;
const COUNTERS = 3;
const CALLERS = 2;
/** Of each caller, between two calls. ms */
const PAUSE_MS = 40;
/** A refused caller. ms */
const REFUSED_MS = 200;

export interface ClusterLoadOptions {
  /** Origin of some node that a load balancer would send a call to. */
  origin(): string;
  /** A client with money, by some node. */
  pay(payer: number): Fetch;
  /** Address of the paid route. */
  paid: string;
  hasBank: boolean;
  random(below: number): number;
  running(): boolean;
}

export class ClusterLoad {
  readonly histories = new Map<string, Operation[]>();
  /** By counter: the names of increments that were acknowledged with their counts, and how many were asked for. */
  readonly counters = new Map<string, { acknowledged: Map<string, number>; attempted: number }>();
  readonly transfers: string[] = [];
  /** Of the bank, while it was open: not what it ought to be. */
  wrongTotals = 0;
  sold = 0;
  readonly refusals = new Map<string, number>();
  answered = 0;
  readonly #options: ClusterLoadOptions;
  #value = 0;

  constructor(options: ClusterLoadOptions) {
    this.#options = options;
  }

  async run(): Promise<void> {
    const lanes = (count: number, work: (lane: number) => Promise<void>) =>
      Array.from({ length: count }, (_, lane) => this.#again(() => work(lane)));
    const registers = KINDS.flatMap((kind) =>
      lanes(KEYS * CALLERS, (lane) => this.#register(kind, `${kind}/${lane % KEYS}`, lane < KEYS)),
    );
    const counters = lanes(COUNTERS * CALLERS, (lane) => this.#count(`c${lane % COUNTERS}`));
    const payers = lanes(CALLERS, (lane) => this.#buy(lane + 1));
    const bank = this.#options.hasBank ? lanes(CALLERS, () => this.#transfer()) : [];
    await Promise.all([...registers, ...counters, ...payers, ...bank]);
  }

  /** Registers that showed what one copy could not have shown. */
  contradictions(): string[] {
    return [...this.histories].flatMap(([key, operations]) => {
      const found = contradiction(operations);
      return found === undefined ? [] : [`${key}: ${found}`];
    });
  }

  /** Reads each register once more, after all else. */
  async readAll(): Promise<void> {
    for (const key of this.histories.keys())
      for (const until = performance.now() + 60_000; performance.now() < until && !(await this.#read(key)); )
        await delay(REFUSED_MS);
  }

  async #again(work: () => Promise<void>): Promise<void> {
    while (this.#options.running()) {
      await work();
      await delay(this.#options.random(2 * PAUSE_MS));
    }
  }

  async #register(kind: string, key: string, writes: boolean): Promise<void> {
    // Objects are slower, and take their time on the S3.
    if (kind === 'r2') await delay(5 * PAUSE_MS);
    if (writes) await this.#write(key);
    else await this.#read(key);
  }

  async #write(key: string): Promise<void> {
    const value = ++this.#value;
    const operation: Operation = { kind: 'write', value, begin: performance.now(), end: Number.POSITIVE_INFINITY };
    this.#history(key).push(operation);
    const answer = await call(`${this.#options.origin()}/stores/${key}`, { method: 'PUT', body: String(value) });
    if (answer.status === 200 && answer.text === 'kept') operation.end = performance.now();
    await this.#note(answer);
  }

  async #read(key: string): Promise<boolean> {
    const begin = performance.now();
    const answer = await call(`${this.#options.origin()}/stores/${key}`);
    await this.#note(answer);
    if (answer.status !== 200) return false;
    const value = answer.text === '' ? undefined : Number(answer.text);
    this.#history(key).push({ kind: 'read', value, begin, end: performance.now() });
    return true;
  }

  async #count(counter: string): Promise<void> {
    const { acknowledged, attempted } = this.counters.get(counter) ?? { acknowledged: new Map(), attempted: 0 };
    this.counters.set(counter, { acknowledged, attempted: attempted + 1 });
    const name = String(++this.#value);
    const answer = await call(`${this.#options.origin()}/counters/${counter}/${name}`, { method: 'POST' });
    if (answer.status === 200) acknowledged.set(name, Number(answer.text));
    await this.#note(answer);
  }

  async #transfer(): Promise<void> {
    const { origin, random } = this.#options;
    const name = String(++this.#value);
    const answer = await call(`${origin()}/bank/move/${name}?from=${random(10)}&to=${random(10)}`);
    if (answer.status === 200 && answer.text === 'moved') this.transfers.push(name);
    const total = await call(`${origin()}/bank/total`);
    if (total.status === 200 && JSON.parse(total.text).total !== BANK_TOTAL) this.wrongTotals++;
    await this.#note(answer);
  }

  async #buy(payer: number): Promise<void> {
    const begin = performance.now();
    try {
      const answer = await this.#options.pay(payer)(this.#options.paid, { signal: AbortSignal.timeout(30_000) });
      const text = await answer.text();
      if (answer.status === 200 && text === 'here') this.sold++;
      const outcome = `paid: ${answer.status}${answer.status === 200 ? '' : ` ${reasonOf(text)}`}`;
      await this.#note({ status: answer.status, text, outcome, ms: performance.now() - begin });
    } catch (error) {
      const { name, cause } = error as Error & { cause?: { code?: string } };
      await this.#note({ status: 0, text: '', outcome: `paid: ${cause?.code ?? name}`, ms: performance.now() - begin });
    }
  }

  #history(key: string): Operation[] {
    const history = this.histories.get(key) ?? [];
    this.histories.set(key, history);
    return history;
  }

  async #note({ status, outcome }: Answer): Promise<void> {
    if (status === 200) {
      this.answered++;
      return;
    }
    this.refusals.set(outcome, (this.refusals.get(outcome) ?? 0) + 1);
    await delay(REFUSED_MS);
  }
}

/** Of a problem document. */
function reasonOf(text: string): string {
  const [, code] = /"code":"(\w+)"/.exec(text) ?? [];
  const [, detail] = /"detail":"([^"]*)/.exec(text) ?? [];
  return code === undefined ? text.slice(0, 100) : `${code}: ${detail}`;
}
