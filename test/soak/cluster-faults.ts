/** What goes wrong with several nodes, one fault after the other, and how long callers are away meanwhile. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Cluster } from '../e2e/support/cluster.ts';
import type { TestHost } from '../e2e/support/host.ts';
import type { Place } from '../e2e/support/namespaces.ts';
import { call } from './call.ts';

/** Between two faults. ms */
const CALM_MS = 3_000;
const POLL_MS = 50;
/** Of one who looks: a call that hangs is made again, and may be answered. */
const PATIENCE_MS = 3_000;
const GIVE_UP_MS = 120_000;
/** How long the S3 answers 503: a minute once, then shorter. */
const REFUSES_MS = [60_000, 20_000];
const CUT_MS = 12_000;
const OBJECTS = ['c0', 'c1', 'c2', 'probe'];
/** A deployment that is changed meanwhile. */
export const ASIDE = 'aside';

/** Of one fault, ms. */
export interface Times {
  /** Until the other nodes served code without objects. */
  elsewhere: number;
  /** Until they had all objects of the node, which it has lost by then. */
  objects?: number;
  /** Until another node had suspended a deployment and resumed it. */
  change?: number;
  /** From the end of the fault until every node serves all. */
  back: number;
  /** Until the node that is cut off, or stopped, refuses. */
  refuses?: number;
}

interface FaultsOptions {
  cluster: Cluster;
  names: string[];
  random(below: number): number;
  running(): boolean;
}

export class Faults {
  readonly times = new Map<string, Times[]>();
  readonly hosts = new Map<string, TestHost>();
  /** To which a load balancer sends nothing: its health check has failed. */
  readonly away = new Set<string>();
  readonly #options: FaultsOptions;
  #minutesOf503 = 0;

  constructor(options: FaultsOptions) {
    this.#options = options;
  }

  /** Of some node that is not known to be away. */
  origin(): string {
    const { names, random } = this.#options;
    const there = names.filter((name) => !this.away.has(name));
    return this.#host(there[random(there.length)] ?? names[0] ?? '').url;
  }

  /** The last answer of a node that was not the one waited for. */
  #refusal = '';

  async run(): Promise<void> {
    const { running, names, random } = this.#options;
    const kinds: [string, (victim: string) => Promise<void>][] = [
      ['node: kill -9', (victim) => this.#restarted('node: kill -9', victim, (host) => host.kill())],
      ['node: cut off from PostgreSQL', (victim) => this.#cutOffFromPostgres(victim)],
      ['PostgreSQL: failover', () => this.#failover()],
      ['S3: 503', () => this.#s3Refuses()],
      ['node: SIGTERM', (victim) => this.#restarted('node: SIGTERM', victim, (host) => host.stop())],
      [
        'node: cut off from the others',
        (victim) =>
          this.#cutOff(
            'node: cut off from the others',
            victim,
            this.#others(victim).map((name) => this.#place(name)),
          ),
      ],
      ['PostgreSQL: kill -9', () => this.#postgresRestarts()],
      ['node: SIGSTOP', (victim) => this.#stopped(victim)],
      ['node: cut off from the S3', (victim) => this.#cutOff('node: cut off from the S3', victim, [this.#apart.s3])],
    ];
    for (let turn = 0; running(); turn++) {
      await delay(CALM_MS);
      const [kind, fault] = kinds[turn % kinds.length] as (typeof kinds)[0];
      const victim = names[random(names.length)] as string;
      const since = performance.now();
      await fault(victim);
      console.log(`${kind} (${victim}): over after ${Math.round((performance.now() - since) / 1_000)} s`);
    }
  }

  /** Whether a node serves code without objects, and objects. */
  async #serves(name: string): Promise<boolean> {
    return (await this.#has(name, 'stores/')) && (await this.#has(name, 'counters/probe'));
  }

  async #has(name: string, path: string): Promise<boolean> {
    const { status, text } = await call(`${this.#host(name).url}/${path}`, {}, PATIENCE_MS);
    if (status !== 200) this.#refusal = `${name} answers ${path} with ${status} ${text.slice(0, 300)}`;
    return status === 200;
  }

  async #restarted(kind: string, victim: string, end: (host: TestHost) => Promise<void>): Promise<void> {
    const host = this.#host(victim);
    this.away.add(victim);
    await end(host);
    const [times, objects] = await Promise.all([this.#elsewhere(victim), this.#objectsElsewhere(victim)]);
    const since = performance.now();
    const restarted = await host.restart();
    this.#options.cluster.nodes.push(restarted);
    this.hosts.set(victim, restarted);
    this.#note(kind, { ...times, objects, back: await this.#back(since) });
  }

  async #cutOffFromPostgres(victim: string): Promise<void> {
    const { network, postgres, standby } = this.#apart;
    const place = this.#place(victim);
    for (const server of [postgres, standby]) network.cut(place, server);
    const times = await this.#loses(victim);
    for (const server of [postgres, standby]) network.heal(place, server);
    this.#note('node: cut off from PostgreSQL', { ...times, back: await this.#back(performance.now()) });
  }

  /** From what it can do without: it goes on. */
  async #cutOff(kind: string, victim: string, from: Place[]): Promise<void> {
    const { network } = this.#apart;
    const place = this.#place(victim);
    for (const other of from) network.cut(place, other);
    const [times] = await Promise.all([this.#elsewhere(victim), delay(CUT_MS)]);
    for (const other of from) network.heal(place, other);
    this.#note(kind, { ...times, back: await this.#back(performance.now()) });
  }

  async #stopped(victim: string): Promise<void> {
    const { pid } = this.#host(victim);
    process.kill(pid, 'SIGSTOP');
    const times = await this.#loses(victim);
    process.kill(pid, 'SIGCONT');
    this.#note('node: SIGSTOP', { ...times, back: await this.#back(performance.now()) });
  }

  /** A node that cannot go on: it refuses, and then the others have what was its. */
  async #loses(victim: string): Promise<Omit<Times, 'back'>> {
    const since = performance.now();
    const [times, refuses] = await Promise.all([this.#elsewhere(victim), this.#refuses(victim)]);
    await this.#objectsElsewhere(victim);
    return { ...times, refuses, objects: performance.now() - since };
  }

  async #postgresRestarts(): Promise<void> {
    const server = this.#options.cluster.postgres;
    await server.kill();
    const since = performance.now();
    await server.start();
    const back = await this.#back(since);
    this.#note('PostgreSQL: kill -9', { elsewhere: back, back });
  }

  /** The standby takes over, and gets a standby of its own. */
  async #failover(): Promise<void> {
    const { cluster } = this.#options;
    const since = performance.now();
    await cluster.failover();
    const back = await this.#back(since);
    this.#note('PostgreSQL: failover', { elsewhere: back, back });
    await cluster.followUp();
  }

  async #s3Refuses(): Promise<void> {
    const { door } = this.#apart;
    door.isShut = true;
    const [times] = await Promise.all([
      this.#elsewhere(''),
      delay(REFUSES_MS[Math.min(this.#minutesOf503++, REFUSES_MS.length - 1)]),
    ]);
    door.isShut = false;
    this.#note('S3: 503', { ...times, back: await this.#back(performance.now()) });
  }

  async #elsewhere(victim: string): Promise<Pick<Times, 'elsewhere' | 'change'>> {
    const others = this.#others(victim);
    const [elsewhere, change] = await Promise.all([
      Promise.all(others.map((name) => this.#until(() => this.#has(name, 'stores/')))),
      this.#change(others[this.#options.random(others.length)] as string),
    ]);
    return { elsewhere: Math.max(...elsewhere), change };
  }

  async #objectsElsewhere(victim: string): Promise<number> {
    const all = this.#others(victim).flatMap((name) =>
      OBJECTS.map((object) => this.#until(() => this.#has(name, `counters/${object}`))),
    );
    return Math.max(...(await Promise.all(all)));
  }

  /** Changes wait for nodes that the others take for living. */
  async #change(name: string): Promise<number> {
    const since = performance.now();
    for (const [act, body] of [['suspend', { reason: 'a fault' }], ['resume']] as const)
      await this.#until(async () => {
        const late = delay(GIVE_UP_MS).then(() => Promise.reject(new Error(`${act} at ${name} is not answered`)));
        const answer = this.#host(name).operator('POST', `/tenants/${ASIDE}/${act}`, body);
        return (await Promise.race([answer, late])).status === 200;
      });
    return performance.now() - since;
  }

  async #refuses(victim: string): Promise<number> {
    const ms = await this.#until(async () => !(await this.#has(victim, 'stores/')));
    this.away.add(victim);
    return ms;
  }

  async #back(since: number): Promise<number> {
    await Promise.all(
      this.#options.names.map(async (name) => {
        await this.#until(() => this.#serves(name));
        this.away.delete(name);
      }),
    );
    return performance.now() - since;
  }

  async #until(isSo: () => Promise<boolean>): Promise<number> {
    const since = performance.now();
    while (!(await isSo())) {
      if (performance.now() - since > GIVE_UP_MS) throw new Error(`the cluster does not come back: ${this.#refusal}`);
      await delay(POLL_MS);
    }
    return performance.now() - since;
  }

  #others(victim: string): string[] {
    return this.#options.names.filter((name) => name !== victim);
  }

  #note(kind: string, times: Times): void {
    this.times.set(kind, [...(this.times.get(kind) ?? []), times]);
  }

  #host(name: string): TestHost {
    const host = this.hosts.get(name);
    if (!host) throw new Error(`there is no node ${name}`);
    return host;
  }

  #place(name: string): Place {
    const node = this.#apart.nodes.get(name);
    if (!node) throw new Error(`there is no node ${name}`);
    return node.place;
  }

  get #apart() {
    return this.#options.cluster.apart;
  }
}
