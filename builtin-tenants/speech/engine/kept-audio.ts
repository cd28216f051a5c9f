/**
 * Audio that was measured and waits for a remote engine to be fed with: under a random name, for a few minutes.
 */
import { randomUUID } from 'node:crypto';
import type { SpooledAudio } from './spool.ts';

export class KeptAudio {
  readonly #kept = new Map<string, { audio: SpooledAudio; timer: NodeJS.Timeout; release: () => void }>();
  readonly #keepMs: number;

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  /** @param release called once, when the audio is dropped or its time is over */
  keep(audio: SpooledAudio, release: () => void): string {
    const id = randomUUID();
    const timer = setTimeout(() => this.drop(id), this.#keepMs);
    timer.unref();
    this.#kept.set(id, { audio, timer, release });
    return id;
  }

  get(id: string): SpooledAudio | undefined {
    return this.#kept.get(id)?.audio;
  }

  drop(id: string): boolean {
    const kept = this.#kept.get(id);
    if (kept === undefined) return false;
    this.#kept.delete(id);
    clearTimeout(kept.timer);
    kept.release();
    return true;
  }

  dropAll(): void {
    for (const id of [...this.#kept.keys()]) this.drop(id);
  }
}
