/**
 * Network namespaces with an address each on one bridge, and nothing else in it. Two of them are cut off from each other as
 * by a broken switch: nothing is refused, and nothing arrives. They end with the test, however that ends. Needs root.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlinkSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { available } from './programs.ts';
import { until } from './until.ts';

const RELAY = fileURLToPath(new URL('relay.ts', import.meta.url));
/** Of nobody. */
const NOWHERE = '02:00:00:00:00:00';

/** Whether this machine lets a test make them. */
export function namespacesAllowed(): boolean {
  if (process.getuid?.() !== 0 || !available('ip', 'nsenter', 'unshare', 'setpriv')) return false;
  try {
    execFileSync('unshare', ['--net', 'ip', 'link', 'add', 'br0', 'type', 'bridge'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

export class Place {
  readonly address: string;
  /** What starts a program here: goes in front of it and its arguments. */
  readonly within: string[];
  readonly #holder: ChildProcess;
  readonly #relays: ChildProcess[] = [];

  private constructor(holder: ChildProcess, address: string) {
    this.#holder = holder;
    this.address = address;
    this.within = ['nsenter', `--net=/proc/${holder.pid}/ns/net`];
  }

  static async open(address: string): Promise<Place> {
    const holder = spawn('unshare', ['--net', 'cat'], { stdio: ['pipe', 'ignore', 'inherit'] });
    const spaceOf = (pid: number | 'self') => readlinkSync(`/proc/${pid}/ns/net`);
    await until(() => holder.pid !== undefined && spaceOf(holder.pid) !== spaceOf('self'));
    const place = new Place(holder, address);
    place.ip('link', 'set', 'lo', 'up');
    return place;
  }

  get pid(): string {
    return String(this.#holder.pid);
  }

  ip(...args: string[]): void {
    const [program = '', ...more] = this.within;
    execFileSync(program, [...more, 'ip', ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
  }

  /** @param addresses from and to, one after the other; see relay.ts */
  async relay(...addresses: string[]): Promise<void> {
    const [program = '', ...more] = this.within;
    const child = spawn(program, [...more, process.execPath, RELAY, ...addresses], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#relays.push(child);
    await once(child.stdout, 'data');
  }

  async close(): Promise<void> {
    await Promise.all(
      [...this.#relays, this.#holder].map(async (child) => {
        const ended = once(child, 'close');
        child.stdin?.end();
        await ended;
      }),
    );
  }
}

export class Namespaces {
  readonly #bridge: Place;
  readonly #places: Place[] = [];
  #count = 0;

  private constructor(bridge: Place) {
    this.#bridge = bridge;
  }

  static async open(): Promise<Namespaces> {
    const bridge = await Place.open('');
    bridge.ip('link', 'add', 'br0', 'type', 'bridge');
    bridge.ip('link', 'set', 'br0', 'up');
    return new Namespaces(bridge);
  }

  async place(): Promise<Place> {
    const number = ++this.#count;
    const place = await Place.open(`10.99.0.${number}`);
    this.#places.push(place);
    this.#bridge.ip('link', 'add', `v${number}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', place.pid);
    this.#bridge.ip('link', 'set', `v${number}`, 'master', 'br0', 'up');
    place.ip('addr', 'add', `${place.address}/24`, 'dev', 'eth0');
    place.ip('link', 'set', 'eth0', 'up');
    return place;
  }

  cut(one: Place, other: Place): void {
    for (const [here, there] of pairs(one, other))
      here.ip('neigh', 'replace', there.address, 'lladdr', NOWHERE, 'nud', 'permanent', 'dev', 'eth0');
  }

  heal(one: Place, other: Place): void {
    for (const [here, there] of pairs(one, other)) here.ip('neigh', 'del', there.address, 'dev', 'eth0');
  }

  async close(): Promise<void> {
    await Promise.all([...this.#places, this.#bridge].map((place) => place.close()));
  }
}

function pairs(one: Place, other: Place): [Place, Place][] {
  return [
    [one, other],
    [other, one],
  ];
}
