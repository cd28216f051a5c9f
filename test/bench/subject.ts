import type { Worker } from './pairs.ts';

/** Something that serves and is measured: ours or a peer. */
export interface Subject {
  name: string;
  /** Origin, without a trailing slash; rows append their paths. */
  origin: string;
  /** Root processes whose CPU and memory count. */
  pids(): number[];
  /** It has nothing to be filled. */
  seeded?: boolean;
  stop(): Promise<void>;
}

/** How to start a subject, or why it cannot be here. */
export interface Starter {
  name: string;
  /** What runs in it, where another checkout can run the same. */
  worker?: Worker;
  /** Undefined: it can start. */
  missing(): string | undefined;
  start(): Promise<Subject>;
}

/** Subjects that several rows measure one after the other: each is started for the first row that wants it, and stays. */
export class SharedSubjects {
  readonly #started = new Map<string, Promise<Subject>>();

  /** Whoever has it from here need not stop it. */
  share(starter: Starter): Starter {
    return {
      ...starter,
      start: async () => {
        const started = this.#started.get(starter.name) ?? starter.start();
        this.#started.set(starter.name, started);
        return { ...(await started), stop: async () => {} };
      },
    };
  }

  async stop(): Promise<void> {
    const started = [...this.#started.values()];
    this.#started.clear();
    for (const result of await Promise.allSettled(started))
      if (result.status === 'fulfilled') await result.value.stop();
  }
}
