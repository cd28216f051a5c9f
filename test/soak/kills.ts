/** Kills every kind of process of the host in turn, and measures how long each tenant is away afterwards. */
import { setTimeout as delay } from 'node:timers/promises';
import { commandOf, processTree } from '../bench/processes.ts';
import type { TestHost } from '../e2e/support/host.ts';
import { call } from './call.ts';

/** From the moment all serve again to the next kill, ms. */
const CALM_MS = 2_500;
const POLL_MS = 10;
const GIVE_UP_MS = 60_000;

/** Command lines of the kinds of processes; the supervisor is the root of them all. */
const KINDS: Record<string, RegExp | undefined> = {
  edge: /host\/edge\/main/,
  storage: /store-process\/main/,
  egress: /host\/egress\/main/,
  workerd: /^\S*workerd serve /,
  sandbox: /^\S*bwrap /,
  'sql supervisor': /d1\.mjs$/,
  'sql engine': /d1\.mjs engine$/,
  chain: /^\S*anvil /,
  bundler: /bundle-worker|esbuild /,
  supervisor: undefined,
};

/** From the start of a supervisor, without load, ms. */
export interface IdleTimes {
  /** To the first answer on the public port. */
  answersMs: number;
  /** To the service of a tenant with every binding. */
  servesMs: number;
}

export interface KillsOptions {
  host: TestHost;
  slugs: string[];
  random(below: number): number;
  running(): boolean;
}

export class Kills {
  /** By kind of process: for each kill the time to each tenant's service (of the supervisor: from the start of the next), ms. */
  readonly away = new Map<string, number[][]>();
  /** From the start of a new supervisor to the first answer on the public port, ms. */
  readonly answeredAfter: number[] = [];
  /** The one that runs now. */
  host: TestHost;
  readonly #options: KillsOptions;

  constructor(options: KillsOptions) {
    this.#options = options;
    this.host = options.host;
  }

  get count(): number {
    return [...this.away.values()].reduce((sum, deaths) => sum + deaths.length, 0);
  }

  /** Kills the supervisor while nothing else is asked of the host. @returns ms in the middle of three times */
  async measureIdle(): Promise<IdleTimes> {
    const answered: number[] = [];
    const served: number[] = [];
    for (let turn = 0; turn < 3; turn++) {
      await this.host.kill();
      const from = performance.now();
      const restarted = this.host.restart();
      answered.push(await this.#untilItAnswers(from));
      served.push(...(await Promise.all(this.#options.slugs.map((slug) => this.#untilItServes(slug, from)))));
      this.host = await restarted;
    }
    return { answersMs: median(answered), servesMs: median(served) };
  }

  async run(): Promise<void> {
    const { running } = this.#options;
    const kinds = Object.keys(KINDS);
    for (let turn = 0; running(); turn++) {
      await delay(CALM_MS);
      await this.#killOne(kinds[turn % kinds.length] ?? 'edge');
    }
  }

  async #killOne(kind: string): Promise<void> {
    const pattern = KINDS[kind];
    let from: number;
    let restarted: Promise<void> | undefined;
    if (pattern === undefined) {
      await this.host.kill();
      from = performance.now();
      restarted = this.host.restart().then((host) => {
        this.host = host;
      });
      this.answeredAfter.push(await this.#untilItAnswers(from));
    } else {
      const pids = processTree([this.host.pid]).filter((pid) => pid !== this.host.pid && pattern.test(commandOf(pid)));
      const victim = pids[this.#options.random(Math.max(1, pids.length))];
      if (victim === undefined) return;
      from = performance.now();
      try {
        process.kill(victim, 'SIGKILL');
      } catch {
        // It ended by itself meanwhile.
        return;
      }
    }
    const times = await Promise.all(this.#options.slugs.map((slug) => this.#untilItServes(slug, from)));
    await restarted;
    this.away.set(kind, [...(this.away.get(kind) ?? []), times]);
  }

  async #untilItAnswers(from: number): Promise<number> {
    const [slug] = this.#options.slugs;
    return poll(from, `${this.host.url}/${slug}/here`, (status) => status === 200);
  }

  /** Every binding, and a call to another tenant under the host's own name. */
  async #untilItServes(slug: string, from: number): Promise<number> {
    const { url, port } = this.host;
    const at = encodeURIComponent(`http://localhost:${port}/${this.#options.slugs[0]}/here`);
    return poll(from, `${url}/${slug}/ready?at=${at}`, (status, text) => status === 200 && text === 'ready');
  }
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}

async function poll(from: number, url: string, done: (status: number, text: string) => boolean): Promise<number> {
  for (;;) {
    const { status, text, outcome } = await call(url);
    const ms = performance.now() - from;
    if (done(status, text)) return ms;
    if (ms > GIVE_UP_MS) throw new Error(`${url} is not back after ${Math.round(ms)} ms: ${outcome} ${text}`);
    await delay(POLL_MS);
  }
}
