/** From what a stranger sends to a stored version: checked, bundled, probed, kept. Nothing of it costs the owner money. */
import { objectsOf } from '../../bindings/durable-objects/classes.ts';
import type { InstanceSpec } from '../../shared/contracts.ts';
import { Problem } from '../../shared/problem.ts';
import { type CodeStore, codeBytes } from '../code-store.ts';
import { Bundler, type BundlerOptions } from './bundle.ts';
import type { CodeInput } from './code-input.ts';
import { checkCompatibility } from './compatibility.ts';
import { type Asker, DeployTurns, type DeployTurnsOptions } from './deploy-turns.ts';
import { type Handler, type ProbeOptions, type ProbePlace, Prober } from './probe.ts';

export interface PipelineOptions extends BundlerOptions, ProbeOptions, Omit<DeployTurnsOptions, 'now'> {
  codeStore: CodeStore;
  /** Business time, ms: dates after it are refused. */
  now(): number;
}

export interface AcceptOptions {
  /** For whom; who may ask how often depends on it. */
  asker: Asker;
  compatibilityDate: string;
  compatibilityFlags: string[];
  /** A version without `scheduled()` is refused where there are any. */
  crons: string[];
  secrets?: Record<string, string>;
  vars?: InstanceSpec['vars'];
  bindings?: InstanceSpec['bindings'];
  /** Where to load it instead of a throwaway sandbox, when its turn has come. Undefined: in one. */
  place?: (() => ProbePlace | undefined) | undefined;
}

export interface AcceptedCode {
  digest: string;
  /** After bundling. */
  bytes: number;
  handlers: Handler[];
  /** The time that it took, ms; tell `wasted` of it if nobody pays. */
  spentMs: number;
}

export class Pipeline {
  readonly #options: PipelineOptions;
  readonly #bundler: Bundler;
  readonly #prober: Prober;
  readonly #turns: DeployTurns;

  constructor(options: PipelineOptions) {
    this.#options = options;
    this.#bundler = new Bundler(options);
    this.#prober = new Prober(options);
    const { atOnce, waitMs } = options;
    this.#turns = new DeployTurns({
      ...(atOnce === undefined ? {} : { atOnce }),
      ...(waitMs === undefined ? {} : { waitMs }),
    });
  }

  /** @throws Problem code_rejected | code_too_large | invalid_field | rate_limited | overloaded */
  async accept(input: CodeInput, options: AcceptOptions): Promise<AcceptedCode> {
    checkCompatibility(options.compatibilityDate, options.compatibilityFlags, this.#options.now());
    const { result, spentMs } = await this.#turns.run(options.asker, async () => {
      // First, because another process works on it while this one is busy starting sandboxes.
      const bundling = this.#bundler.bundle(input);
      bundling.catch(() => undefined);
      const place = options.place?.() ?? this.#prober.prepare();
      const bundle = await bundling.catch((error) => {
        place.end(false, () => undefined);
        throw error;
      });
      const staged = this.#options.codeStore.stage(bundle);
      try {
        const yielding = options.asker.kind === 'stranger';
        const { handlers, entrypoints } = await this.#prober.probe({ ...options, bundle, yielding }, place, (found) =>
          refuseWithout(found.handlers, options),
        );
        return { digest: await staged.keep(entrypoints), bytes: codeBytes(bundle), handlers };
      } catch (error) {
        await staged.discard();
        throw error;
      }
    });
    return { ...result, spentMs };
  }

  /**
   * Whether stored code loads with other settings or secrets than those that it was accepted with.
   * @throws Problem code_rejected | invalid_field | rate_limited | overloaded | start_failed (the code is not there)
   */
  async check(digest: string, options: Omit<AcceptOptions, 'crons'>): Promise<void> {
    checkCompatibility(options.compatibilityDate, options.compatibilityFlags, this.#options.now());
    await this.#turns.run(options.asker, async () => {
      const bundle = await this.#options.codeStore.get(digest);
      await this.#prober.probe({ ...options, bundle }, options.place?.());
    });
  }

  /** What was accepted is not paid for: it counts against whoever asked. */
  wasted(asker: Asker, spentMs: number): void {
    this.#turns.wasted(asker, spentMs);
  }

  close(): void {
    this.#bundler.close();
  }
}

/** @throws Problem where something is asked for that the code has no handler for */
function refuseWithout(handlers: Handler[], { crons, bindings = {} }: AcceptOptions): void {
  if (crons.length > 0 && !handlers.includes('scheduled')) {
    const detail = 'There are crons, but the default export has no scheduled function.';
    throw new Problem('code_rejected', detail, { errors: [{ pointer: '/crons', detail }] });
  }
  if (objectsOf(bindings)?.consumers.length && !handlers.includes('queue')) {
    const detail = 'A queue has a consumer, but the default export has no queue function.';
    throw new Problem('code_rejected', detail, { errors: [{ pointer: '/bindings/queues', detail }] });
  }
}
