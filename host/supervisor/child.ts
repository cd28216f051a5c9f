/**
 * One child process of the host: started, told what it needs, started again with back-off when it dies, stopped.
 * Children get everything over the channel and end by themselves when it closes, so none outlives the supervisor.
 */
import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { Channel, type Methods } from '../shared/channel.ts';
import { Problem } from '../shared/problem.ts';
import { type ProcessName, takeProcess } from './prefork.ts';

export type ProcessState = 'starting' | 'ready' | 'restarting' | 'stopped';

const FIRST_BACKOFF_MS = 50;
const LONGEST_BACKOFF_MS = 5_000;
/** A child that lived this long starts without delay when it dies. */
const HEALTHY_AFTER_MS = 10_000;
const STOP_MS = 3_000;

export interface ChildSetUp<Remote extends Methods> {
  /** What the child may call. */
  local: Methods;
  /** Runs after every start, the first one included; the child counts as ready when it is done. */
  setUp(channel: Channel<Remote>): Promise<void>;
}

export class Child<Remote extends Methods> {
  readonly name: string;
  readonly #kind: ProcessName;
  readonly #log: Logger;
  readonly #restartHandlers: (() => Promise<void>)[] = [];
  #process: ChildProcess | undefined;
  #channel: Channel<Remote> | undefined;
  #state: ProcessState = 'starting';
  #backoffMs = 0;
  #restarts = 0;

  constructor(name: string, kind: ProcessName, log: Logger) {
    this.name = name;
    this.#kind = kind;
    this.#log = log;
  }

  get state(): ProcessState {
    return this.#state;
  }

  get restarts(): number {
    return this.#restarts;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Rejects when the first start fails: the host then does not start. */
  async start(setUp: ChildSetUp<Remote>): Promise<void> {
    await this.#launch(setUp);
  }

  /** `restore` runs when a child that died is ready again: it tells the child what it knew beside its set-up. */
  onRestart(restore: () => Promise<void>): void {
    this.#restartHandlers.push(restore);
  }

  /** @throws Problem not_ready while the child is not running */
  channel(): Channel<Remote> {
    if (!this.#channel || this.#state === 'stopped') {
      throw new Problem('not_ready', `The ${this.name} process is restarting; try again in a second.`, {
        headers: { 'retry-after': '1' },
      });
    }
    return this.#channel;
  }

  async stop(): Promise<void> {
    this.#state = 'stopped';
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    // Every child ends when its channel closes.
    if (child.connected) child.disconnect();
    else child.kill('SIGTERM');
    const slow = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await exited;
    clearTimeout(slow);
  }

  async #launch(options: ChildSetUp<Remote>): Promise<void> {
    const { name } = this;
    const { local, setUp } = options;
    const startedAt = performance.now();
    const child = takeProcess(this.#kind);
    this.#process = child;
    const channel = new Channel<Remote>(child, local);
    const died = new Promise<string>((resolve) => {
      child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`));
      child.once('error', (error) => resolve(error.message));
    });
    const ready = setUp(channel).then(() => 'ready' as const);
    const outcome = await Promise.race([ready, died.then((reason) => ({ reason }))]).catch((error) => {
      // It lives, but knows not all that it needs: another is started in its place.
      channel.close();
      child.kill('SIGKILL');
      throw error;
    });
    if (outcome !== 'ready') throw new Error(`the ${name} process ended while starting: ${outcome.reason}`);
    this.#channel = channel;
    if (this.#state === 'stopped') return;
    this.#state = 'ready';
    died.then((reason) => {
      if (this.#state === 'stopped') return;
      this.#log.error({ part: name, reason }, 'a child process of the host died; restarting it');
      channel.close();
      this.#channel = undefined;
      if (performance.now() - startedAt > HEALTHY_AFTER_MS) this.#backoffMs = 0;
      void this.#restart(options);
    });
  }

  async #restart(options: ChildSetUp<Remote>): Promise<void> {
    while (this.#state !== 'stopped') {
      this.#state = 'restarting';
      this.#restarts += 1;
      await delay(this.#backoffMs);
      this.#backoffMs = Math.min(LONGEST_BACKOFF_MS, Math.max(FIRST_BACKOFF_MS, this.#backoffMs * 2));
      if ((this.#state as ProcessState) === 'stopped') return;
      try {
        await this.#launch(options);
      } catch (error) {
        this.#log.error({ part: this.name, err: error }, 'a child process of the host did not start; retrying');
        continue;
      }
      await Promise.all(this.#restartHandlers.map((restore) => restore())).catch((error) => {
        // When it died meanwhile, the next start restores it.
        this.#log.error({ part: this.name, err: error }, 'child process restarted, but restoring its state failed');
      });
      return;
    }
  }
}
