/**
 * Keeps a few prewarmed sandboxes ready for cold starts. Each costs about 5 MB. A cold start in one is faster than starting
 * workerd alone, because workerd only has to read its configuration.
 */
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { Logger } from 'pino';
import type { Sandbox } from '../sandbox/confinement.ts';
import {
  type PrewarmedSandbox,
  type PrewarmedSandboxOptions,
  sandboxFolders,
  startPrewarmedSandbox,
} from './prewarmed-sandbox.ts';

export interface StandbyOptions {
  sandbox: Sandbox;
  /** Holds one folder per prewarmed sandbox, named by a number. */
  folder: string;
  /** Largest number of prewarmed sandboxes. */
  count: number;
  cgroups?: PrewarmedSandboxOptions['cgroups'];
  log: Logger;
}

/** Sandboxes are prepared after this long without a cold start, ms, so that they do not slow a start down. */
const QUIET_MS = 150;

export class Standby {
  readonly #options: StandbyOptions;
  readonly #ready: PrewarmedSandbox[] = [];
  #number = 0;
  #timer: NodeJS.Timeout | undefined;
  #filling = false;
  #closed = false;

  constructor(options: StandbyOptions) {
    this.#options = options;
    this.#fillLater();
  }

  /** Returns an unused sandbox: a prewarmed one, or a new one. Its folder is `folderOf(prewarmed)`. */
  async take(): Promise<PrewarmedSandbox> {
    this.#fillLater();
    for (;;) {
      const prewarmed = this.#ready.pop();
      if (!prewarmed) return this.make();
      if (prewarmed.process.pid() !== undefined) return prewarmed;
      this.#discard(prewarmed);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await Promise.all(this.#ready.splice(0).map((prewarmed) => this.#discard(prewarmed)));
  }

  /** A sandbox that is not like the others. */
  make(special: Pick<PrewarmedSandboxOptions, 'objects' | 'uid'> = {}): Promise<PrewarmedSandbox> {
    const { sandbox, folder, cgroups } = this.#options;
    return startPrewarmedSandbox({
      ...special,
      sandbox,
      cgroups,
      ...sandboxFolders(path.join(folder, (this.#number++).toString(36))),
    });
  }

  #fillLater(): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.#fill(), QUIET_MS).unref();
  }

  async #fill(): Promise<void> {
    if (this.#filling) return;
    this.#filling = true;
    try {
      while (this.#ready.length < this.#options.count && !this.#closed) {
        const prewarmed = await this.make();
        if (this.#closed) await this.#discard(prewarmed);
        else this.#ready.push(prewarmed);
        void prewarmed.process.exited.then(() => this.#forget(prewarmed));
      }
    } catch (error) {
      this.#options.log.warn(
        { err: error },
        'could not prepare a sandbox for the next cold start; the start will prepare its own',
      );
    } finally {
      this.#filling = false;
    }
  }

  /** Removes a sandbox that died before it was used. */
  #forget(prewarmed: PrewarmedSandbox): void {
    const at = this.#ready.indexOf(prewarmed);
    if (at < 0) return;
    this.#ready.splice(at, 1);
    rmSync(folderOf(prewarmed), { recursive: true, force: true });
    this.#fillLater();
  }

  async #discard(prewarmed: PrewarmedSandbox): Promise<void> {
    prewarmed.process.kill();
    await prewarmed.process.ended;
    rmSync(folderOf(prewarmed), { recursive: true, force: true });
  }
}

/** The folder that holds everything of a sandbox. */
export function folderOf(prewarmed: PrewarmedSandbox): string {
  return path.dirname(prewarmed.servicesFolder);
}
