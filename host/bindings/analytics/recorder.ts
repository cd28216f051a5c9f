/**
 * Data points on their way to the database: they wait for a moment and are written together. Recording never
 * waits; what comes faster than it can be written is dropped, and counted.
 */
import type { DataPoint } from './schema.ts';

export interface RecorderOptions {
  /** Longest wait before a write begins, ms. */
  delayMs: number;
  /** What may wait, in points and in bytes as they came. */
  mostPoints: number;
  mostBytes: number;
  /** Resolves when they are kept. */
  write(points: readonly DataPoint[]): Promise<void>;
  /** Points were lost. @param why a sentence for the owner */
  lost(count: number, why: string): void;
}

export const TOO_FAST = 'They were recorded faster than they can be written.';

export class Recorder {
  readonly #options: RecorderOptions;
  #waiting: DataPoint[] = [];
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  /** What comes now is dropped. */
  get full(): boolean {
    return this.#waiting.length >= this.#options.mostPoints || this.#bytes >= this.#options.mostBytes;
  }

  /** @param bytes that the point takes about */
  add(point: DataPoint, bytes: number): void {
    const { delayMs, lost } = this.#options;
    if (this.full) {
      lost(1, TOO_FAST);
      return;
    }
    this.#waiting.push(point);
    this.#bytes += bytes;
    this.#timer ??= setTimeout(() => void this.flush(), delayMs);
    // Within workerd it is a number.
    this.#timer.unref?.();
  }

  /** Writes what waits now. Resolves when it is kept, or lost. */
  flush(): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      // Taken when its turn comes: what waits for a slow write is bounded like all else.
      const points = this.#waiting;
      this.#waiting = [];
      this.#bytes = 0;
      if (points.length === 0) return;
      const { write, lost } = this.#options;
      await write(points).catch((error: Error) => lost(points.length, error.message));
    });
    return this.#writing;
  }
}
