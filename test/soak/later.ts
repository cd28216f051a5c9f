/**
 * What is acknowledged now and done later: messages of a queue, alarms of Durable Objects, workflows. Whatever was
 * acknowledged has to be done in the end, whatever was killed meanwhile.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { call } from './call.ts';

export const LATER = ['queue', 'alarm', 'flow'] as const;
const PAUSE_MS = 20;
/** For what was acknowledged last, and for what is tried again after a kill, ms. */
const GIVE_UP_MS = 120_000;

export interface LaterOptions {
  origin: string;
  slugs: string[];
  random(below: number): number;
  running(): boolean;
  paceMs: number;
}

export class Later {
  readonly #options: LaterOptions;
  readonly #acknowledged = new Map<string, string[]>();

  constructor(options: LaterOptions) {
    this.#options = options;
  }

  get count(): number {
    return [...this.#acknowledged.values()].reduce((sum, ids) => sum + ids.length, 0);
  }

  /** Until `running` says no. */
  async run(): Promise<void> {
    const { slugs } = this.#options;
    await Promise.all(slugs.flatMap((slug) => LATER.map((kind) => this.#ask(slug, kind))));
  }

  /** Waits until all is done. @returns by kind how many were acknowledged, and how many of them were never done */
  async verify(): Promise<Record<string, { acknowledged: number; missing: number }>> {
    const found: Record<string, { acknowledged: number; missing: number }> = {};
    const end = performance.now() + GIVE_UP_MS;
    for (const kind of LATER) {
      const sum = { acknowledged: 0, missing: 0 };
      for (const slug of this.#options.slugs) {
        const ids = this.#acknowledged.get(`${slug}/${kind}`) ?? [];
        const missing = await this.#missing(slug, kind, ids, end);
        if (missing.length > 0)
          console.error(`${slug}: of ${kind} ${missing.length} were not done: ${missing.slice(0, 5)}`);
        sum.acknowledged += ids.length;
        sum.missing += missing.length;
      }
      found[kind] = sum;
    }
    return found;
  }

  async #missing(slug: string, kind: string, ids: string[], end: number): Promise<string[]> {
    for (;;) {
      const { status, text } = await call(`${this.#options.origin}/${slug}/done?id=${kind}`);
      const done = new Set(status === 200 ? (JSON.parse(text) as string[]) : []);
      const missing = ids.filter((id) => !done.has(id));
      if (missing.length === 0 || performance.now() > end) return missing;
      await delay(500);
    }
  }

  async #ask(slug: string, kind: string): Promise<void> {
    const { origin, random, running, paceMs } = this.#options;
    const ids: string[] = [];
    this.#acknowledged.set(`${slug}/${kind}`, ids);
    for (let count = 0; running(); count++) {
      const id = `${kind}-${count}`;
      const { status, text } = await call(`${origin}/${slug}/${kind}?id=${id}`, { method: 'POST', body: id });
      if (status === 200 && text === 'kept') ids.push(id);
      else await delay(PAUSE_MS);
      await delay(random(4 * paceMs));
    }
  }
}
