/**
 * The instance in service, and what is watched of it: the memory it holds, an event loop that does not turn, and
 * whether it wants a core all the time.
 */

import { CpuShare } from '../sandbox/cpu-share.ts';
import { type ProcessUsage, wantedMsOf } from '../sandbox/process-tree.ts';
import type { Standing } from '../shared/priority.ts';
import type { ExitReason } from './exit-reason.ts';
import type { InstanceProcess } from './instance-process.ts';
import { StallWatch } from './stall-watch.ts';

export type LimitReason = Extract<ExitReason, 'cpu_exceeded' | 'memory_exceeded' | 'storage_exceeded'>;

export interface WatchOptions {
  memoryBytes: number;
  /** CPU that may be used while the event loop does not turn, ms. */
  cpuStallMs: number;
  /** Others go first from the start, until it is seen to want little. */
  yielding: boolean;
  /** It is over a limit. @param detail one sentence for the owner */
  onExceeded(reason: LimitReason, detail: string): void;
}

export class WatchedInstance {
  readonly instance: InstanceProcess;
  readonly #options: WatchOptions;
  readonly #stall: StallWatch;
  readonly #share: CpuShare;
  #weighed: Standing | undefined;

  constructor(instance: InstanceProcess, options: WatchOptions) {
    const { cpuStallMs, yielding, onExceeded } = options;
    this.instance = instance;
    this.#options = options;
    this.#stall = new StallWatch({
      limitMs: cpuStallMs,
      ping: (timeoutMs) => instance.ping(timeoutMs),
      onStall: () =>
        onExceeded(
          'cpu_exceeded',
          `The event loop did not turn while the process used ${cpuStallMs / 1_000} s of CPU.`,
        ),
    });
    this.#share = new CpuShare(yielding ? 'hungry' : 'steady');
    this.#weigh(false);
  }

  get alive(): boolean {
    return this.instance.alive;
  }

  /** Looks at it. @param now ms of `performance.now()`; @param alone no other tenant does anything */
  sample(now: number, alone: boolean): ProcessUsage {
    const usage = this.instance.usage();
    const { memoryBytes, onExceeded } = this.#options;
    if (usage.privateBytes > memoryBytes) {
      onExceeded(
        'memory_exceeded',
        `The process held ${megabytes(usage.privateBytes)} MB; ${megabytes(memoryBytes)} MB are allowed.`,
      );
    }
    this.#stall.sample(now, usage.cpuMs);
    const { pid } = this.instance;
    this.#share.sample(now, { cpuMs: usage.cpuMs, wantedMs: pid === undefined ? undefined : wantedMsOf(pid) });
    this.#weigh(alone);
    return usage;
  }

  /** @param bytes of its answers that came out in about the last second */
  answered(bytes: number): void {
    this.#stall.answered(bytes);
  }

  #weigh(alone: boolean): void {
    // The less it weighs the longer it waits on a core that the edge, storage and its own callers use, too, also while
    // another is idle. Where nobody else is served that helps nobody.
    const { appetite } = this.#share;
    const standing = alone && appetite !== 'light' ? 'alone' : appetite;
    if (standing !== this.#weighed && this.instance.weigh(standing)) this.#weighed = standing;
  }
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1_048_576);
}
