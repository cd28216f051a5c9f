/**
 * A process of its own that keeps one native model loaded and works for the engine, one request after the other: a crash
 * in there fails the requests under way, and the next one starts it anew. It says `{ready: facts}` once it has loaded,
 * and answers each `{id, …}` with `{id, result}` or `{id, failed: why}`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { EngineFailure } from './failure.ts';

/** A model of a gigabyte is read from a slow disk in less. */
const LOAD_MS = 60_000;
/** Longest work on one request, ms. */
const WORK_MS = 60_000;
const MOST_SAID = 4096;

export class NativeProcess<Facts, Result> {
  readonly #child: ChildProcess;
  readonly #answers = new Map<number, PromiseWithResolvers<Result>>();
  readonly #ready = Promise.withResolvers<Facts>();
  readonly #what: string;
  #said = '';
  #id = 0;
  isOver = false;

  /**
   * @param file the program
   * @param config its one argument, as JSON
   * @param what is said to have ended, such as `the recognizer`
   */
  constructor(file: string, config: object, what: string) {
    this.#what = what;
    this.#child = spawn(process.execPath, ['--max-old-space-size=256', '--expose-gc', file, JSON.stringify(config)], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      serialization: 'advanced',
      env: {},
      detached: true,
    });
    this.#ready.promise.catch(() => {});
    const late = setTimeout(() => this.end(), LOAD_MS);
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#said = (this.#said + text).slice(-MOST_SAID);
    });
    this.#child.on('message', (message: { ready?: Facts; id?: number; result?: Result; failed?: string }) => {
      if (message.ready !== undefined) {
        clearTimeout(late);
        this.#ready.resolve(message.ready);
      }
      const answer = message.id === undefined ? undefined : this.#answers.get(message.id);
      if (message.result !== undefined) answer?.resolve(message.result);
      else if (message.failed !== undefined) answer?.reject(this.#failure(message.failed));
    });
    this.#child.on('error', () => this.#died());
    this.#child.on('exit', () => clearTimeout(late));
    // not before all that it said is here
    this.#child.on('close', () => this.#died());
  }

  /** @throws EngineFailure internal, whose cause is what the program said last */
  get ready(): Promise<Facts> {
    return this.#ready.promise;
  }

  /** @throws EngineFailure internal */
  async ask(work: object): Promise<Result> {
    await this.ready;
    const id = this.#id++;
    const answer = Promise.withResolvers<Result>();
    this.#answers.set(id, answer);
    const late = setTimeout(() => this.end(), WORK_MS);
    this.#child.send({ ...work, id }, (error) => error && this.#died());
    return await answer.promise.finally(() => {
      clearTimeout(late);
      this.#answers.delete(id);
    });
  }

  end(): void {
    this.#child.kill('SIGKILL');
    this.#died();
  }

  #died(): void {
    this.isOver = true;
    const failure = this.#failure(lastLine(this.#said));
    this.#ready.reject(failure);
    for (const { reject } of this.#answers.values()) reject(failure);
  }

  #failure(cause: string): EngineFailure {
    const failure = new EngineFailure('internal', `${this.#what} ended`);
    failure.cause = cause;
    return failure;
  }
}

/** What native code said last, without the place in its source. */
export function lastLine(text: string): string {
  const line = text
    .split('\n')
    .map((one) => one.trim())
    .findLast((one) => one !== '');
  return line?.replace(/^(\S+:\d+|what\(\):)\s+/, '').slice(0, 300) ?? 'it gave no reason';
}
