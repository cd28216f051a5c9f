/**
 * What is made of a deployment's next version while that is still being checked, so that an update waits less: a sandbox,
 * and in it the instance that the code was probed in.
 */
import { rmSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import type { InstanceSpec } from '../shared/contracts.ts';
import type { InstanceProcess } from './instance-process.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';

/** An update that was refused, or has not got so far by then, is not waited for, ms. */
const KEPT_MS = 15_000;

export interface LoadedInstance {
  instance: InstanceProcess;
  sandbox: PrewarmedSandbox;
  /** To be called when it is in service. */
  adopted(): void;
}

interface Waiting {
  sandbox: PrewarmedSandbox;
  hasEnded: boolean;
}

export class NextInstance {
  #waiting: Promise<Waiting> | undefined;
  #loaded: LoadedInstance | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /** Makes a sandbox where none waits. */
  prepare(make: () => Promise<PrewarmedSandbox>): void {
    if (this.#closed) return;
    this.#keep();
    this.#waiting ??= make().then(watched);
    // `takeSandbox` handles the failure.
    this.#waiting.catch(() => undefined);
  }

  /** @returns the sandbox that waits, where it is one for this; else it is ended */
  async takeSandbox(judging: boolean): Promise<PrewarmedSandbox | undefined> {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    const made = await waiting?.catch(() => undefined);
    if (!made) return undefined;
    if (!made.hasEnded && made.sandbox.judging === judging) return made.sandbox;
    await end(made.sandbox);
    return undefined;
  }

  /** Keeps an instance that is accepted, until `takeLoaded` or some seconds later. */
  keepLoaded(loaded: LoadedInstance): void {
    this.#dropLoaded();
    if (this.#closed) {
      drop(loaded);
      return;
    }
    this.#keep();
    this.#loaded = loaded;
  }

  /** @returns the instance, where it is what is to be started, and younger than all others; else it is ended */
  takeLoaded(spec: InstanceSpec, others: InstanceProcess[]): LoadedInstance | undefined {
    const loaded = this.#loaded;
    if (!loaded) return undefined;
    const { instance } = loaded;
    const isYoungest = others.every(({ generation }) => generation < instance.generation);
    if (!instance.alive || !isYoungest || !isDeepStrictEqual(comparable(instance.spec), comparable(spec))) {
      this.#dropLoaded();
      return undefined;
    }
    this.#loaded = undefined;
    return loaded;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#discard();
  }

  #keep(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#discard(), KEPT_MS).unref();
  }

  #dropLoaded(): void {
    const loaded = this.#loaded;
    this.#loaded = undefined;
    if (loaded) drop(loaded);
  }

  async #discard(): Promise<void> {
    clearTimeout(this.#timer);
    this.#dropLoaded();
    const waiting = this.#waiting;
    this.#waiting = undefined;
    const made = await waiting?.catch(() => undefined);
    if (made) await end(made.sandbox);
  }
}

/** All that decides how it runs; static files are named by what they are. */
function comparable({ bundle, assets, ...spec }: InstanceSpec) {
  const files = assets && { ...assets, place: undefined };
  return { ...spec, ...bundle, entrypoints: bundle.entrypoints ?? [], files };
}

function drop({ instance }: LoadedInstance): void {
  void instance.kill('stopped', 'It is not needed.');
}

function watched(sandbox: PrewarmedSandbox): Waiting {
  const waiting = { sandbox, hasEnded: false };
  void sandbox.process.exited.then(() => {
    waiting.hasEnded = true;
  });
  return waiting;
}

async function end({ process, listenFolder }: PrewarmedSandbox): Promise<void> {
  process.kill();
  await process.ended;
  rmSync(listenFolder, { recursive: true, force: true });
}
