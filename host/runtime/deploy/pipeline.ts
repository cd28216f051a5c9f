/** From what a stranger sends to a stored version: checked, bundled, probed, kept. Nothing of it costs the owner money. */
import type { InstanceSpec } from '../../shared/contracts.ts';
import { Problem } from '../../shared/problem.ts';
import { type CodeStore, codeBytes } from '../code-store.ts';
import { Bundler, type BundlerOptions } from './bundle.ts';
import type { CodeInput } from './code-input.ts';
import { checkCompatibility } from './compatibility.ts';
import { type Handler, type ProbeOptions, Prober } from './probe.ts';

export interface PipelineOptions extends BundlerOptions, ProbeOptions {
  codeStore: CodeStore;
  /** Business time, ms: dates after it are refused. */
  now(): number;
}

export interface AcceptOptions {
  compatibilityDate: string;
  compatibilityFlags: string[];
  /** A version without `scheduled()` is refused where there are any. */
  crons: string[];
  secrets?: Record<string, string>;
  bindings?: InstanceSpec['bindings'];
}

export interface AcceptedCode {
  digest: string;
  /** After bundling. */
  bytes: number;
  handlers: Handler[];
}

export class Pipeline {
  readonly #options: PipelineOptions;
  readonly #bundler: Bundler;
  readonly #prober: Prober;

  constructor(options: PipelineOptions) {
    this.#options = options;
    this.#bundler = new Bundler(options);
    this.#prober = new Prober(options);
  }

  /** @throws Problem code_rejected | code_too_large | invalid_field */
  async accept(input: CodeInput, options: AcceptOptions): Promise<AcceptedCode> {
    checkCompatibility(options.compatibilityDate, options.compatibilityFlags, this.#options.now());
    const bundle = await this.#bundler.bundle(input);
    const handlers = await this.#prober.probe({ ...options, bundle });
    if (options.crons.length > 0 && !handlers.includes('scheduled')) {
      const detail = 'There are crons, but the default export has no scheduled function.';
      throw new Problem('code_rejected', detail, { errors: [{ pointer: '/crons', detail }] });
    }
    return { digest: await this.#options.codeStore.put(bundle), bytes: codeBytes(bundle), handlers };
  }

  /**
   * Whether stored code loads with other settings or secrets than those that it was accepted with.
   * @throws Problem code_rejected | invalid_field | start_failed (the code is not there)
   */
  async check(digest: string, options: Omit<AcceptOptions, 'crons'>): Promise<void> {
    checkCompatibility(options.compatibilityDate, options.compatibilityFlags, this.#options.now());
    await this.#prober.probe({ ...options, bundle: await this.#options.codeStore.get(digest) });
  }

  close(): void {
    this.#bundler.close();
  }
}
