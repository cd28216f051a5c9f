/**
 * An update of a deployment whose objects are a cluster's, in step on all nodes: workerd refuses calls of an instance that
 * gives its objects up, and whoever called one there before learns who has it now by a call that fails
 * (workerd 1.20261117.1). So all old instances end while nobody calls any object, and all new ones begin after that.
 */
import { EventEmitter, once } from 'node:events';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import type { Others, Pieces } from '../shared/others.ts';

/** How far the update of a node is; each is a byte of its answer. */
export type Step = 'heard' | 'ready' | 'quiet' | 'busy' | 'left';

const BYTES: Record<Step, number> = { heard: 1, ready: 2, quiet: 3, busy: 4, left: 5 };
/** Of an answer, its end with them: more is none. */
const MOST_BYTES = 16;
const QUESTION = 'update of objects';
const askedShape = z.strictObject({ slug: z.string().max(200), revision: z.string().max(200) });
/** Updates of one node that others follow at a time. */
const FOLLOWED = { most: 64 };
/** A node that has not even heard of the question is away, ms. */
const HEARD_MS = 1_000;
/** How long another node may take for its new instance, while the old ones serve, ms. */
const READY_MS = 5_000;

/** The version of a slug that serves on this node; undefined: none does. */
export type Serving = (slug: string) => string | undefined;

export class JointUpdates {
  readonly #others: Others;
  readonly #serving: Serving;
  /** Under way on this node, by slug. */
  readonly #updates = new Map<string, JointUpdate>();
  /** Of any of them. */
  readonly #news = new EventEmitter().setMaxListeners(0);

  constructor(others: Others, serving: Serving) {
    this.#others = others;
    this.#serving = serving;
    others.answer(QUESTION, askedShape, FOLLOWED, (asked, gone) => this.#answer(asked, gone));
  }

  /** The new instance is there, and the old ones serve. One of a slug at a time. */
  begin(slug: string, revision: string): JointUpdate {
    const asked = { slug, revision };
    const nodes = this.#others.names().map((node) => new OtherNode(this.#others.open(node, QUESTION, asked)));
    const update = new JointUpdate(revision, nodes, () => {
      if (update.over) this.#updates.delete(slug);
      this.#news.emit('news');
    });
    this.#updates.set(slug, update);
    this.#news.emit('news');
    return update;
  }

  /** What serves on this node may be another version, or nothing. */
  changed(): void {
    this.#news.emit('news');
  }

  /** The steps as they come. It ends where there is nothing to wait for. */
  async *#answer({ slug, revision }: z.infer<typeof askedShape>, gone: AbortSignal): Pieces {
    yield Buffer.of(BYTES.heard);
    // What serves an older version will be replaced soon: this node hears of a change as the others do.
    while (!this.#updates.has(slug) && (this.#serving(slug) ?? revision) !== revision)
      await once(this.#news, 'news', { signal: gone });
    const update = this.#updates.get(slug);
    if (update?.revision !== revision) return;
    for (let told = 0; !update.over || told < update.steps.length; ) {
      const step = update.steps[told];
      if (step === undefined) await once(this.#news, 'news', { signal: gone });
      else {
        yield Buffer.of(BYTES[step]);
        told++;
      }
    }
  }
}

/** As this node goes through it. */
export class JointUpdate {
  readonly revision: string;
  /** In their order. */
  readonly steps: Step[] = ['ready'];
  readonly #nodes: OtherNode[];
  readonly #onStep: () => void;
  #over = false;

  constructor(revision: string, nodes: OtherNode[], onStep: () => void) {
    this.revision = revision;
    this.#nodes = nodes;
    this.#onStep = onStep;
  }

  get over(): boolean {
    return this.#over;
  }

  /** Resolves when all other nodes have their new instance. A node that takes too long is not waited for any more. */
  async allReady(): Promise<void> {
    await Promise.all(
      this.#nodes.map(async (node) => {
        const heard = await node.reaches(['heard'], HEARD_MS);
        if (!heard || !(await node.reaches(['ready'], READY_MS))) node.forget();
      }),
    );
  }

  /** @param quiet nothing is under way on this node @returns whether that is so on all */
  async allQuiet(quiet: boolean, waitMs: number): Promise<boolean> {
    this.#reach(quiet ? 'quiet' : 'busy');
    if (!quiet) return false;
    await Promise.all(this.#nodes.map((node) => node.reaches(['quiet', 'busy'], waitMs)));
    return this.#nodes.every((node) => !node.has('busy'));
  }

  /** The old instances of this node have given their objects up. Resolves when those of all have. */
  async allLeft(waitMs: number): Promise<void> {
    this.#reach('left');
    await Promise.all(this.#nodes.map((node) => node.reaches(['left'], waitMs)));
  }

  end(): void {
    this.#over = true;
    this.#onStep();
    for (const node of this.#nodes) node.forget();
  }

  #reach(step: Step): void {
    this.steps.push(step);
    this.#onStep();
  }
}

/** What another node says of its update. One whose answer has ended is not waited for. */
class OtherNode {
  readonly #answer: Readable;
  readonly #said = new Set<number>();
  readonly #news = new EventEmitter().setMaxListeners(0);
  #over = false;

  constructor(answer: Readable) {
    this.#answer = answer;
    void this.#listen();
  }

  has(step: Step): boolean {
    return this.#said.has(BYTES[step]);
  }

  /** Resolves when it is at one of these steps, or nothing comes of it any more. @returns false: it took too long */
  async reaches(steps: Step[], waitMs: number): Promise<boolean> {
    const signal = AbortSignal.timeout(waitMs);
    while (!this.#over && !steps.some((step) => this.has(step))) {
      const came = await once(this.#news, 'news', { signal }).catch(() => undefined);
      if (!came) return false;
    }
    return true;
  }

  forget(): void {
    this.#answer.destroy();
  }

  async #listen(): Promise<void> {
    try {
      let left = MOST_BYTES;
      for await (const piece of this.#answer as AsyncIterable<Buffer>) {
        left -= piece.length;
        if (left < 0) break;
        for (const byte of piece) this.#said.add(byte);
        this.#news.emit('news');
      }
    } catch {
      // It is away, or does not know the question.
    }
    this.#over = true;
    this.#news.emit('news');
  }
}
