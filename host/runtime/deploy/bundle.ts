/** Bundles what strangers send, in a child process that is killed when it takes too long and started anew. */
import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import { treeOf, usageOf } from '../../sandbox/process-tree.ts';
import type { CodeBundle } from '../../shared/contracts.ts';
import { Problem } from '../../shared/problem.ts';
import { codeBytes } from '../code-store.ts';
import type { BundleAnswer, BundleRequest } from './bundle-worker.ts';
import { type CodeInput, readCodeInput } from './code-input.ts';

export interface BundlerOptions {
  /** Largest code after bundling, bytes. */
  maxBytes: number;
  /** CPU that bundling may take, ms. */
  cpuMs?: number;
  /** Time that it may take, ms: where the machine is busy, it is not the code's fault. */
  timeoutMs?: number;
}

/** Why there is no answer. */
interface Failure {
  failure: Problem;
}

/** One bundling that is under way. */
interface Pending {
  request: BundleRequest;
  resolve(answer: BundleAnswer | Failure): void;
  timer?: NodeJS.Timeout;
  /** It may take until then, ms of `performance.now()`. */
  deadline: number;
  /** The process that it was given to; undefined: it waits to be tried again. */
  child: ChildProcess | undefined;
  /** Processes that ended by themselves while it was under way. */
  ends: number;
  /** It is tried again by itself. */
  again: boolean;
}

const WORKER = path.join(import.meta.dirname, 'bundle-worker.ts');
/** Of the environment. Compiled code makes the first deploy after a pause wait half as long for the process. */
const PASSED_ON = ['PATH', 'NODE_COMPILE_CACHE'];
const CPU_MS = 15_000;
const TIMEOUT_MS = 120_000;
/** Its CPU is looked at again after this long at the earliest, ms. */
const SHORTEST_LOOK_MS = 100;
/** The process ends after this long without work, ms. */
const IDLE_MS = 60_000;
const HEAP_MB = 512;
/** Who was under way so often when the process ended is taken for the reason. */
const MAX_ENDS = 3;

export class Bundler {
  readonly #options: BundlerOptions;
  readonly #pending = new Map<number, Pending>();
  #child: ChildProcess | undefined;
  #idle: NodeJS.Timeout | undefined;
  #nextId = 1;
  #closed = false;
  /** Bundlings that are tried again, one after the other. */
  #again: Promise<unknown> = Promise.resolve();

  constructor(options: BundlerOptions) {
    this.#options = options;
  }

  /** @throws Problem invalid_field | code_rejected (with file, line and column) | code_too_large | not_ready (closed) | overloaded */
  async bundle(input: CodeInput): Promise<CodeBundle> {
    const sources = readCodeInput(input);
    const { maxBytes } = this.#options;
    const given = sources.modules.reduce((sum, { text, bytes }) => sum + (text?.length ?? bytes?.length ?? 0), 0);
    // What is not used is not bundled, but the parser should not have to find that out at any length.
    if (given > maxBytes * 4) throw tooLarge(given, maxBytes);
    const answer = await this.#ask({ id: this.#nextId++, sources });
    if ('failure' in answer) throw answer.failure;
    if ('errors' in answer) {
      const [first] = answer.errors;
      const place = first?.file === undefined ? '' : ` (${first.file}:${first.line}:${first.column})`;
      throw new Problem('code_rejected', `${first?.detail ?? 'The code does not bundle.'}${place}`, {
        errors: answer.errors,
      });
    }
    const bytes = codeBytes(answer.bundle);
    if (bytes > maxBytes) throw tooLarge(bytes, maxBytes);
    const { modules, sourceMap } = answer.bundle;
    // Of code without end in short statements: its stacks stay as they are.
    return (sourceMap?.length ?? 0) > maxBytes ? { modules, sourceMap: undefined } : answer.bundle;
  }

  /** Ends the process. What is under way, or comes later, is refused. */
  close(): void {
    this.#closed = true;
    this.#end();
  }

  /** Ends the process; the next call starts it again. */
  #end(): void {
    clearTimeout(this.#idle);
    this.#child?.kill('SIGKILL');
  }

  #ask(request: BundleRequest): Promise<BundleAnswer | Failure> {
    return new Promise((resolve) => {
      const pending: Pending = { request, resolve, child: undefined, deadline: 0, ends: 0, again: false };
      this.#pending.set(request.id, pending);
      this.#send(pending);
    });
  }

  #send(pending: Pending): void {
    if (this.#closed) {
      this.#settle(pending, { failure: stopping() });
      return;
    }
    const child = this.#start();
    clearTimeout(this.#idle);
    pending.child = child;
    pending.deadline = performance.now() + (this.#options.timeoutMs ?? TIMEOUT_MS);
    this.#limit(pending, child, cpuOf(child) + (this.#options.cpuMs ?? CPU_MS));
    child.send(pending.request);
  }

  /** @param endCpuMs CPU of the process, of what it was given meanwhile too, at which it is ended */
  #limit(pending: Pending, child: ChildProcess, endCpuMs: number): void {
    const leftMs = Math.min(endCpuMs - cpuOf(child), pending.deadline - performance.now());
    pending.timer = setTimeout(
      () => {
        const complicated = cpuOf(child) >= endCpuMs;
        if (!complicated && performance.now() < pending.deadline) {
          this.#limit(pending, child, endCpuMs);
          return;
        }
        this.#settle(pending, { failure: complicated ? tooComplicated() : tooBusy() });
        child.kill('SIGKILL');
      },
      Math.max(leftMs, SHORTEST_LOOK_MS),
    );
  }

  #settle(pending: Pending, answer: BundleAnswer | Failure): void {
    if (!this.#pending.delete(pending.request.id)) return;
    clearTimeout(pending.timer);
    if (this.#pending.size === 0) this.#idle = setTimeout(() => this.#end(), IDLE_MS).unref();
    pending.resolve(answer);
  }

  #start(): ChildProcess {
    if (this.#child) return this.#child;
    const child = fork(WORKER, [], {
      serialization: 'advanced',
      execArgv: ['--disable-warning=ExperimentalWarning', `--max-old-space-size=${HEAP_MB}`],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      // esbuild needs to know nothing of this machine.
      env: Object.fromEntries(PASSED_ON.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []))),
    });
    this.#child = child;
    child.on('message', (answer: BundleAnswer) => {
      const pending = this.#pending.get(answer.id);
      if (pending) this.#settle(pending, answer);
    });
    child.on('error', () => undefined);
    child.once('exit', () => {
      if (this.#child === child) this.#child = undefined;
      this.#ended(child);
    });
    return child;
  }

  /** Somebody's code was too much for the process: others that were under way are tried again, one after the other. */
  #ended(child: ChildProcess): void {
    const left = [...this.#pending.values()].filter((pending) => pending.child === child);
    for (const pending of left) {
      clearTimeout(pending.timer);
      pending.child = undefined;
      // Whoever it was killed for has been told.
      if (!child.killed) pending.ends += 1;
      const guilty = !child.killed && (left.length === 1 || pending.ends >= MAX_ENDS);
      if (this.#closed) this.#settle(pending, { failure: stopping() });
      else if (guilty) this.#settle(pending, { failure: tooComplicated() });
      else if (pending.again) this.#send(pending);
      else this.#again = this.#again.then(() => this.#retry(pending));
    }
  }

  #retry(pending: Pending): Promise<void> {
    return new Promise((done) => {
      const { resolve } = pending;
      pending.again = true;
      pending.resolve = (answer) => {
        resolve(answer);
        done();
      };
      this.#send(pending);
    });
  }
}

function stopping(): Problem {
  return new Problem('not_ready', 'The host is stopping; try again when it runs again.');
}

/** The bundler is a child of that process. @returns ms; 0 when it is gone */
function cpuOf({ pid }: ChildProcess): number {
  return pid === undefined ? 0 : treeOf(pid).reduce((sum, member) => sum + (usageOf(member)?.cpuMs ?? 0), 0);
}

function tooBusy(): Problem {
  return new Problem('overloaded', 'The host is too busy to bundle the code; try again in a minute.');
}

function tooComplicated(): Problem {
  return new Problem(
    'code_rejected',
    'The bundler cannot process this code: it is too complex or too deeply nested. Simplify it.',
  );
}

function tooLarge(bytes: number, maxBytes: number): Problem {
  return new Problem('code_too_large', `The code has ${bytes} bytes; ${maxBytes} are allowed.`);
}
