/** The sandbox of a deployment's next version, started while that is still being checked: an update waits less. */
import { rmSync } from 'node:fs';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';

/** An update that was refused, or has not got so far by then, is not waited for, ms. */
const KEPT_MS = 15_000;

interface Waiting {
  sandbox: PrewarmedSandbox;
  hasEnded: boolean;
}

export class NextSandbox {
  #waiting: Promise<Waiting> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /** Where none waits. */
  prepare(make: () => Promise<PrewarmedSandbox>): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.#discard(), KEPT_MS).unref();
    this.#waiting ??= make().then(watched);
    // Whoever takes it is told.
    this.#waiting.catch(() => undefined);
  }

  /** @returns undefined where there is none, or it has ended */
  async take(): Promise<PrewarmedSandbox | undefined> {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    clearTimeout(this.#timer);
    const made = await waiting?.catch(() => undefined);
    if (!made?.hasEnded) return made?.sandbox;
    await end(made.sandbox);
    return undefined;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#discard();
  }

  async #discard(): Promise<void> {
    const sandbox = await this.take();
    if (sandbox) await end(sandbox);
  }
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
