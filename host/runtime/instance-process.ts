/**
 * One workerd process of one deployment: started in its sandbox, watched, asked for health, ended. What it is started
 * for and when it ends is decided elsewhere (deployment-runner.ts).
 */

import { rmSync } from 'node:fs';
import path from 'node:path';
import type { QueueAnswer, QueueCall } from '../bindings/queues/call.ts';
import { readLines } from '../sandbox/flood-gate.ts';
import { type ProcessUsage, usageOf, workOf } from '../sandbox/process-tree.ts';
import type { ConfinedProcess, ProcessEnd } from '../sandbox/spawn.ts';
import { limitStart } from '../sandbox/start-limit.ts';
import type { CodeModule, InstanceSpec } from '../shared/contracts.ts';
import { type Standing, setTenantPriority } from '../shared/priority.ts';
import { Problem } from '../shared/problem.ts';
import type { Cgroup } from './cgroups.ts';
import type { ClusterMember } from './cluster-member.ts';
import { encodeConfig, entrySockets } from './config.ts';
import { PROBE_SOCKET } from './deploy/probe-worker.ts';
import type { ExitReason } from './exit-reason.ts';
import type { NewLogEntry } from './logs/log-entry.ts';
import { createMask } from './logs/mask.ts';
import { createStackMapper } from './logs/stack.ts';
import { parseOutputLine } from './logs/workerd-output.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';
import { askScheduled, askTail, callQueue, ping, type ScheduledAnswer } from './system-calls.ts';

export interface InstanceProcessOptions {
  spec: InstanceSpec;
  generation: number;
  /** Generation of the one beside which it serves; default: its own. */
  first?: number | undefined;
  /** The waiting process that is to become the instance; ended with it. */
  prewarmed: PrewarmedSandbox;
  /** Of the cluster of its tenant's objects. */
  member?: ClusterMember | undefined;
  /** That cluster cannot be reached. */
  away?: boolean | undefined;
  heapMb: number;
  startTimeoutMs: number;
  /** A line for the owner, with secrets masked. */
  onLog(entry: NewLogEntry): void;
  /** A line of workerd's own for the host's log. */
  onDiagnostic(text: string): void;
  /** It is about to end by itself, for this reason. */
  onFailing?(instance: InstanceProcess, exit: InstanceExit): void;
  /** Modules before the tenant's, of a probe: it can be asked what the code exports (`probeSocket`). */
  front?: CodeModule[];
  /** Called while it loads the code, for those who watch that. */
  onSpawned?(instance: InstanceProcess): void;
}

export interface InstanceExit {
  reason: ExitReason;
  detail: string;
}

/** From SIGTERM to SIGKILL: an open WebSocket or a busy loop keeps workerd from ending. */
const TERMINATE_MS = 5_000;
/** workerd's own messages that are kept to explain a failed start. */
const KEPT_DIAGNOSTICS = 20;

const HEAP_LIMIT: InstanceExit = { reason: 'memory_exceeded', detail: 'The JavaScript heap reached its limit.' };

const FILES_LIMIT: InstanceExit = {
  reason: 'files_exceeded',
  detail: 'It had more connections open at once than it may, those of its callers and its own together.',
};

const OUT_OF_MEMORY: InstanceExit = {
  reason: 'memory_exceeded',
  detail: 'The process took more memory than it may have.',
};

export class InstanceProcess {
  readonly spec: InstanceSpec;
  readonly generation: number;
  /** The same for all that serve together. */
  readonly first: number;
  /** Where it serves requests. */
  readonly socket: string;
  /** It was started without its objects: the cluster could not be reached. */
  readonly away: boolean;
  /** Clock time, ms. */
  readonly startedAt: number;
  readonly #bornAt = performance.now();
  /** Resolves when the process is gone and the folder of its sockets removed. */
  readonly ended: Promise<InstanceExit>;
  readonly systemSocket: string;
  readonly #process: ConfinedProcess;
  readonly #cgroup: Cgroup | undefined;
  readonly #member: ClusterMember | undefined;
  /** Set before the process is made to end; the first reason stands. */
  #reason: InstanceExit | undefined;
  #killed = false;
  #alive = true;
  #lastUsage: ProcessUsage = { cpuMs: 0, privateBytes: 0 };
  #countedMs = 0;
  #work: string | undefined;
  readonly #runs = new Set<Promise<unknown>>();
  readonly #leaving = new AbortController();
  readonly #listenFolder: string;

  private constructor(options: InstanceProcessOptions) {
    const { process, listenFolder: folder } = options.prewarmed;
    this.spec = options.spec;
    this.generation = options.generation;
    this.first = options.first ?? options.generation;
    this.away = options.away === true;
    this.socket = path.join(folder, 'http.sock');
    this.startedAt = Date.now();
    this.systemSocket = path.join(folder, 'system.sock');
    this.#listenFolder = folder;
    this.#process = process;
    this.#cgroup = options.prewarmed.cgroup;
    this.#member = options.member;
    void process.exited.then(() => {
      this.#alive = false;
      this.leave();
    });
    this.ended = process.ended.then((end) => {
      this.#alive = false;
      rmSync(folder, { recursive: true, force: true });
      return this.#reason ?? (this.#cgroup?.ranOutOfMemory() ? OUT_OF_MEMORY : explain(end));
    });
  }

  /**
   * @returns once it listens
   * @throws Problem start_failed with workerd's own words; nothing is left behind, whatever is thrown
   */
  static async start(options: InstanceProcessOptions): Promise<InstanceProcess> {
    const { spec, prewarmed } = options;
    const instance = new InstanceProcess(options);
    try {
      const diagnostics = instance.#readOutput(options);
      options.onSpawned?.(instance);
      prewarmed.process.stdin.end(
        encodeConfig(
          spec,
          { ...prewarmed.inside, member: options.member?.config, away: options.away },
          options.heapMb,
          options.front,
        ),
      );
      await instance.#listening(options.startTimeoutMs, diagnostics);
      return instance;
    } catch (error) {
      if (instance.alive) await instance.kill('start_failed', 'It could not be started.');
      throw error;
    }
  }

  /** Since it started, ms. */
  get ageMs(): number {
    return performance.now() - this.#bornAt;
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** Last known when the process is gone. */
  usage(): ProcessUsage {
    const pid = this.#process.pid();
    const usage = pid === undefined ? undefined : usageOf(pid);
    if (usage && this.#alive) this.#lastUsage = usage;
    return this.#lastUsage;
  }

  /** CPU time since this was last asked, ms. */
  takeCpuMs(): number {
    const { cpuMs } = this.usage();
    const taken = cpuMs - this.#countedMs;
    this.#countedMs = cpuMs;
    return taken;
  }

  get pid(): number | undefined {
    return this.#process.pid();
  }

  /** What it gets of a crowded machine. @returns whether that is settled; else it should be said again */
  weigh(standing: Standing): boolean {
    if (!this.#alive) return true;
    this.#cgroup?.weigh(standing);
    const { pid } = this;
    return pid !== undefined && setTenantPriority([pid], standing);
  }

  /** Whether the event loop turned within the time. */
  ping(timeoutMs: number): Promise<boolean> {
    return ping(this.systemSocket, timeoutMs);
  }

  /** Calls the tenant's `scheduled()`. @throws Error when the process ends before it answered */
  scheduled(cron: string, scheduledTimeMs: number): Promise<ScheduledAnswer> {
    return this.occupy(askScheduled(this.systemSocket, cron, scheduledTimeMs));
  }

  /** Calls the tenant's `tail()`. @throws Error when the process ends before it answered, or after half a minute */
  tail(from: string, events: Buffer): Promise<ScheduledAnswer> {
    return this.occupy(askTail(this.systemSocket, from, events));
  }

  /** It has something to do that no edge knows of, until this settles. */
  occupy<Result>(run: Promise<Result>): Promise<Result> {
    this.#runs.add(run);
    const forget = () => void this.#runs.delete(run);
    run.then(forget, forget);
    return run;
  }

  /** Path of the socket of a probe, where it was started with one. */
  get probeSocket(): string {
    return path.join(this.#listenFolder, `${PROBE_SOCKET}.sock`);
  }

  /** Path of the socket of one of its entrypoints; undefined where it has none of that name. */
  entrySocket(entrypoint: string | undefined): string | undefined {
    const found = entrySockets(this.spec).find((one) => one.entrypoint === entrypoint);
    return found && path.join(this.#listenFolder, `${found.name}.sock`);
  }

  /** Aborted when nothing new should begin in it. */
  get leaving(): AbortSignal {
    return this.#leaving.signal;
  }

  /** It is about to end. */
  leave(): void {
    this.#leaving.abort();
  }

  /** @throws Error when the process ends before it answered */
  callQueue(binding: string, call: QueueCall): Promise<QueueAnswer> {
    return callQueue(this.systemSocket, binding, call);
  }

  /** Resolves when nothing runs that it was occupied with, `scheduled()` too. */
  async runsEnded(): Promise<void> {
    await Promise.allSettled(this.#runs);
  }

  /** Lets requests in flight end; after five seconds it is killed. Resolves when it is gone. */
  async terminate(reason: ExitReason, detail: string): Promise<InstanceExit> {
    this.#reason ??= { reason, detail };
    this.leave();
    // For the last time that can be counted on: of a process that is gone nobody knows it.
    this.usage();
    this.#process.terminate();
    const timer = setTimeout(() => {
      this.usage();
      this.#process.kill();
    }, TERMINATE_MS);
    const exit = await this.ended;
    clearTimeout(timer);
    return exit;
  }

  /** Ends it at once, or when `first` is done. */
  async kill(reason: ExitReason, detail: string, first?: Promise<unknown>): Promise<InstanceExit> {
    this.#reason ??= { reason, detail };
    this.#killed = true;
    await first;
    this.usage();
    this.#process.kill();
    return this.ended;
  }

  /** Resolves when it has given its objects back, or is gone: another instance may have them from then on. */
  async objectsLeft(): Promise<void> {
    await Promise.race([this.ended, ...(this.#member ? [this.#member.left] : [])]);
  }

  /** Whether it has done anything since this was last asked. */
  hasWorked(): boolean {
    // Its process runs every second for its lease.
    if (this.#member) return this.#member.hasWorked();
    const { pid } = this;
    const work = pid === undefined ? undefined : workOf(pid);
    const worked = work !== this.#work;
    this.#work = work;
    return worked;
  }

  /** Halts the process, or lets it go on. @returns whether it was there */
  halt(still: boolean): boolean {
    const { pid } = this;
    if (pid === undefined) return false;
    try {
      return process.kill(pid, still ? 'SIGSTOP' : 'SIGCONT');
    } catch {
      // It ended in the meantime.
      return false;
    }
  }

  /** It ends at once; one that was told to end may take its time. */
  get killed(): boolean {
    return this.#killed;
  }

  /** It was told to end. */
  get ending(): boolean {
    return this.#reason !== undefined;
  }

  #readOutput(options: InstanceProcessOptions): string[] {
    const { spec } = options;
    const mask = createMask(spec.secrets);
    const mapStack = createStackMapper(spec.bundle.modules[0]?.name ?? '', spec.bundle.sourceMap);
    const diagnostics: string[] = [];
    const onLine = (line: string): void => {
      const output = parseOutputLine(line);
      if (!output) return;
      switch (output.kind) {
        case 'console':
          options.onLog({ ...output, text: mask(output.level === 'error' ? mapStack(output.text) : output.text) });
          return;
        case 'exception': {
          options.onLog({ ...output, text: mask(output.text), stack: mask(mapStack(output.stack)) });
          return;
        }
        case 'heap-limit':
          this.#reason ??= HEAP_LIMIT;
          options.onFailing?.(this, HEAP_LIMIT);
          return;
        case 'files-limit':
          this.#reason ??= FILES_LIMIT;
          options.onFailing?.(this, FILES_LIMIT);
          return;
        case 'runtime':
          if (output.level === 'info') return;
          if (diagnostics.length < KEPT_DIAGNOSTICS) diagnostics.push(mask(mapStack(output.text)));
          options.onDiagnostic(mask(output.text).slice(0, 2_000));
      }
    };
    const onDropped = (lines: number, bytes: number): void =>
      options.onLog({
        kind: 'platform',
        event: 'log-dropped',
        text: `${lines} lines (${bytes} bytes) were printed faster than a log takes them, and dropped`,
      });
    readLines(this.#process.stdout, { onLine, onDropped });
    readLines(this.#process.stderr, { onLine, onDropped });
    return diagnostics;
  }

  async #listening(timeoutMs: number, diagnostics: string[]): Promise<void> {
    const late = Promise.withResolvers<{ passedMs: number }>();
    const started = limitStart(this.#process.pid, timeoutMs, (passedMs) => late.resolve({ passedMs }));
    const outcome = await Promise.race([
      listensOn(this.#process, ['http', 'system', ...entrySockets(this.spec).map(({ name }) => name)]).then(
        () => 'listening' as const,
      ),
      this.ended,
      late.promise,
    ]);
    started();
    if (outcome === 'listening') return;
    if ('passedMs' in outcome) {
      const detail = `The handler did not finish loading within ${Math.floor(outcome.passedMs / 100) / 10} s; look for an endless loop or a long computation outside of its functions.`;
      await this.kill('start_failed', detail);
      throw new Problem('start_failed', detail);
    }
    const said = diagnostics.join('\n').trim();
    if (outcome.reason === 'memory_exceeded') throw new Problem('memory_exceeded', outcome.detail);
    throw new Problem('start_failed', said === '' ? outcome.detail : said);
  }
}

function explain(end: ProcessEnd): InstanceExit {
  const how =
    end.signal ?? (end.code !== undefined && end.code > 128 ? `signal ${end.code - 128}` : `code ${end.code}`);
  return { reason: 'crashed', detail: `The process ended by itself (${how}).` };
}

/** Resolves when workerd reported that it listens on all of these sockets. */
function listensOn(process: ConfinedProcess, names: string[]): Promise<void> {
  const missing = new Set(names);
  return new Promise((resolve) => {
    readLines(process.control, {
      onLine(line) {
        const event = JSON.parse(line) as { event?: string; socket?: string };
        if (event.event === 'listen' && event.socket !== undefined) missing.delete(event.socket);
        if (missing.size === 0) resolve();
      },
      onDropped: () => undefined,
      lineMs: Number.POSITIVE_INFINITY,
    });
  });
}
