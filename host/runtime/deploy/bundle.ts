/** Bundles what strangers send, in a child process that is killed when it takes too long and started anew. */
import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import type { CodeBundle } from '../../shared/contracts.ts';
import { Problem } from '../../shared/problem.ts';
import { codeBytes } from '../code-store.ts';
import type { BundleAnswer, BundleRequest } from './bundle-worker.ts';
import { type CodeInput, readCodeInput } from './code-input.ts';

export interface BundlerOptions {
  /** Largest code after bundling, bytes. */
  maxBytes: number;
  timeoutMs?: number;
}

/** The process ended over it. */
interface Failure {
  failure: string;
}

const WORKER = path.join(import.meta.dirname, 'bundle-worker.ts');
const TIMEOUT_MS = 15_000;
/** The process ends after this long without work, ms. */
const IDLE_MS = 60_000;
const HEAP_MB = 512;

export class Bundler {
  readonly #options: BundlerOptions;
  readonly #waiting = new Map<number, (answer: BundleAnswer | Failure) => void>();
  #child: ChildProcess | undefined;
  #idle: NodeJS.Timeout | undefined;
  #nextId = 1;

  constructor(options: BundlerOptions) {
    this.#options = options;
  }

  /** @throws Problem invalid_field | code_rejected (with file, line and column) | code_too_large */
  async bundle(input: CodeInput): Promise<CodeBundle> {
    const sources = readCodeInput(input);
    const { maxBytes } = this.#options;
    const given = sources.modules.reduce((sum, { text, bytes }) => sum + (text?.length ?? bytes?.length ?? 0), 0);
    // What is not used is not bundled, but the parser should not have to find that out at any length.
    if (given > maxBytes * 4) throw tooLarge(given, maxBytes);
    const answer = await this.#ask({ id: this.#nextId++, sources });
    if ('failure' in answer) throw new Problem('code_rejected', answer.failure);
    if ('errors' in answer) {
      const [first] = answer.errors;
      const place = first?.file === undefined ? '' : ` (${first.file}:${first.line}:${first.column})`;
      throw new Problem('code_rejected', `${first?.detail ?? 'The code does not bundle.'}${place}`, {
        errors: answer.errors,
      });
    }
    const bytes = codeBytes(answer.bundle);
    if (bytes > maxBytes) throw tooLarge(bytes, maxBytes);
    return answer.bundle;
  }

  /** Ends the process; the next call starts it again. */
  close(): void {
    clearTimeout(this.#idle);
    this.#child?.kill('SIGKILL');
  }

  #ask(request: BundleRequest): Promise<BundleAnswer | Failure> {
    const child = this.#start();
    clearTimeout(this.#idle);
    return new Promise((resolve) => {
      const timer = setTimeout(() => child.kill('SIGKILL'), this.#options.timeoutMs ?? TIMEOUT_MS);
      this.#waiting.set(request.id, (answer) => {
        clearTimeout(timer);
        this.#waiting.delete(request.id);
        if (this.#waiting.size === 0) this.#idle = setTimeout(() => this.close(), IDLE_MS).unref();
        resolve(answer);
      });
      child.send(request);
    });
  }

  #start(): ChildProcess {
    if (this.#child) return this.#child;
    const child = fork(WORKER, [], {
      serialization: 'advanced',
      execArgv: ['--disable-warning=ExperimentalWarning', `--max-old-space-size=${HEAP_MB}`],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      // esbuild needs to know nothing of this machine.
      env: { ...(process.env.PATH === undefined ? {} : { PATH: process.env.PATH }) },
    });
    this.#child = child;
    child.on('message', (answer: BundleAnswer) => this.#waiting.get(answer.id)?.(answer));
    child.on('error', () => undefined);
    child.once('exit', () => {
      if (this.#child === child) this.#child = undefined;
      const failure = 'The code is too complicated to bundle, or too deeply nested.';
      for (const resolve of this.#waiting.values()) resolve({ failure });
    });
    return child;
  }
}

function tooLarge(bytes: number, maxBytes: number): Problem {
  return new Problem('code_too_large', `The code has ${bytes} bytes; ${maxBytes} are allowed.`);
}
