/**
 * The load of the soak: writers per tenant and binding, readers, calls from tenant to tenant. Every answer is compared
 * with what was acknowledged by then.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type Answer, call, HUNG_MS } from './call.ts';

export const KINDS = ['kv', 'd1', 'r2', 'objects'];
const WRITERS = 2;
const READERS = 4;
/** Every so many writes of a writer go to a key that is overwritten again and again. */
const OVERWRITE_EVERY = 4;
const LONGEST_VALUE = 2_000;
/** Of some objects, so that they lie in extents. */
const LONGEST_OBJECT = 130_000;
/** Wrong answers that are printed. */
const SHOWN = 20;
/** A caller who was refused waits this long, ms, and twice as long each further time, up to the longest pause. */
const PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 320;
/** Handlers answer 500 when a binding fails them; the edge 502, 503 and 504 when it has nobody to ask. */
const REFUSALS = new Set([0, 500, 502, 503, 504]);

/** What a key may hold: any version from the last acknowledged one to the last attempted one. */
interface Key {
  acknowledged: number;
  attempted: number;
}

export interface LoadOptions {
  origin: string;
  /** The origin as tenants call it. */
  ownName: string;
  slugs: string[];
  /** A number from 0 to below the given one, the same ones for the same seed. */
  random(below: number): number;
  running(): boolean;
  /** A writer writes again this long after its last answer, ms. */
  paceMs: number;
}

export class Load {
  readonly counts = { written: 0, read: 0, neighbourly: 0, refused: 0, unread: 0, wrong: 0, hung: 0 };
  /** How often which refusal was seen. */
  readonly refusals = new Map<string, number>();
  longestRefusalMs = 0;
  readonly #options: LoadOptions;
  readonly #keys = new Map<string, Key>();
  readonly #places: string[] = [];

  constructor(options: LoadOptions) {
    this.#options = options;
  }

  /** Until `running` says no. */
  async run(): Promise<void> {
    const { slugs } = this.#options;
    const lanes = slugs.flatMap((slug) =>
      KINDS.flatMap((kind) => Array.from({ length: WRITERS }, (_, lane) => this.#write(`${slug}/${kind}?id=${lane}`))),
    );
    const readers = Array.from({ length: READERS }, () => this.#read());
    await Promise.all([...lanes, ...readers, ...slugs.map((slug) => this.#callNeighbours(slug))]);
  }

  /** Reads everything that was ever written. @returns how many keys hold something that they may not */
  async verify(concurrency = 24): Promise<{ keys: number; wrong: number }> {
    let wrong = 0;
    let next = 0;
    const worker = async () => {
      for (;;) {
        const place = this.#places[next++];
        if (place === undefined) return;
        const key = this.#keys.get(place);
        for (;;) {
          const answer = await call(`${this.#options.origin}/${place}`);
          if (REFUSALS.has(answer.status)) {
            await delay(PAUSE_MS);
            continue;
          }
          const problem = key && judge(place, answer, key, key.acknowledged);
          if (problem) {
            wrong += 1;
            console.error(`after the soak: ${problem}`);
          }
          break;
        }
      }
    };
    await Promise.all(Array.from({ length: concurrency }, worker));
    return { keys: this.#places.length, wrong };
  }

  async #write(lane: string): Promise<void> {
    const { origin, random, running, paceMs } = this.#options;
    let overwritten = `${lane}-0-again`;
    let pause = PAUSE_MS;
    for (let next = 1; running(); next++) {
      const place = next % OVERWRITE_EVERY === 0 ? overwritten : `${lane}-${next}`;
      let key = this.#keys.get(place);
      if (!key) {
        key = { acknowledged: 0, attempted: 0 };
        this.#keys.set(place, key);
        this.#places.push(place);
      }
      key.attempted += 1;
      const version = key.attempted;
      const answer = await call(`${origin}/${place}`, { method: 'POST', body: versionOf(place, version) });
      if (answer.status === 200 && answer.text === 'kept') {
        key.acknowledged = version;
        this.counts.written += 1;
        pause = PAUSE_MS;
      } else {
        this.#refused(place, answer);
        this.counts.refused += 1;
        // What was not acknowledged may still arrive: no later version of the same key is asked for.
        if (place === overwritten) overwritten = `${lane}-${next}-again`;
        await delay(pause);
        pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
      }
      if (paceMs > 0) await delay(random(2 * paceMs));
    }
  }

  async #read(): Promise<void> {
    const { origin, random, running } = this.#options;
    while (running()) {
      const place = this.#places[random(Math.max(1, this.#places.length))];
      const key = place === undefined ? undefined : this.#keys.get(place);
      if (place !== undefined && key) {
        const { acknowledged } = key;
        const answer = await call(`${origin}/${place}`);
        if (REFUSALS.has(answer.status)) {
          this.#refused(place, answer);
          this.counts.unread += 1;
        } else {
          const problem = judge(place, answer, key, acknowledged);
          if (problem) this.#wrong(problem);
          else this.counts.read += 1;
        }
      }
      await delay(random(20));
    }
  }

  /** By the outbound proxy, through the public address of the host. */
  async #callNeighbours(slug: string): Promise<void> {
    const { origin, slugs, random, running } = this.#options;
    while (running()) {
      const at = `${this.#options.ownName}/${slugs[random(slugs.length)]}/here`;
      const answer = await call(`${origin}/${slug}/neighbour?at=${encodeURIComponent(at)}`);
      if (answer.status === 200 && answer.text === 'here') this.counts.neighbourly += 1;
      else {
        this.#refused(`${slug}/neighbour`, answer);
        this.counts.unread += 1;
      }
      await delay(random(50));
    }
  }

  #refused(place: string, { status, outcome, text, ms }: Answer): void {
    if (!REFUSALS.has(status)) {
      this.#wrong(`${place} answered ${status}: ${text.slice(0, 200)}`);
      return;
    }
    this.refusals.set(outcome, (this.refusals.get(outcome) ?? 0) + 1);
    this.longestRefusalMs = Math.max(this.longestRefusalMs, ms);
    if (ms >= HUNG_MS) this.counts.hung += 1;
  }

  #wrong(problem: string): void {
    this.counts.wrong += 1;
    if (this.counts.wrong <= SHOWN) console.error(`wrong: ${problem}`);
  }
}

/** @param acknowledged the last version that was acknowledged before the read began */
function judge(place: string, { status, text }: Answer, key: Key, acknowledged: number): string | undefined {
  if (status === 404) return acknowledged === 0 ? undefined : `${place} is lost, version ${acknowledged} was kept`;
  if (status !== 200) return `${place} answered ${status}: ${text.slice(0, 200)}`;
  const version = Number.parseInt(text, 10);
  if (text !== versionOf(place, version)) return `${place} is torn: ${text.length} bytes, ${text.slice(0, 80)}`;
  if (version >= acknowledged && version <= key.attempted) return undefined;
  return `${place} has version ${version}, from ${acknowledged} to ${key.attempted} are right`;
}

/** Begins with the version; of a length that depends on both. */
function versionOf(place: string, version: number): string {
  let hash = version;
  for (const character of place) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) >>> 0;
  const longest = place.startsWith('r2') && hash % 3 === 0 ? LONGEST_OBJECT : LONGEST_VALUE;
  return `${version} ${place} ${String.fromCharCode(97 + (hash % 26)).repeat(hash % longest)}`;
}
