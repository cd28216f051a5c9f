/**
 * A facilitator that the operator names, in place of the one in this process (x402 specification, section 7: GET
 * /supported, POST /verify and /settle). It is believed in nothing: its answers are bounded and checked here, payments
 * are verified by this host before it is asked, and what it says to have settled is looked up on the chain (by rails).
 */
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import type { Logger } from 'pino';
import { z } from 'zod';
import { Problem } from '../../../shared/problem.ts';
import type { SettleResult } from '../../terms.ts';
import type { FacilitatorStatus } from '../../types.ts';
import { type Authorize, authorizer, type FacilitatorSettings } from './facilitator-key.ts';
import { type ReadSchemes, type Scheme, type Supported, supportedAnswer } from './supported.ts';

const MOST_ANSWER_BYTES = 256 * 1_024;
/** The operator is told once in this time, ms: payers cause it. */
const WARN_MS = 10_000;

const words = z.string().max(1_000).nullish();
const verifyAnswer = z.object({ isValid: z.boolean(), invalidReason: words });
const settleAnswer = z.object({ success: z.boolean(), transaction: z.string().max(200).nullish(), errorReason: words });

/**
 * Reasons of @x402/evm that say that nothing was sent, and never will be. After all others a transaction may be on its
 * way: a proxy before the facilitator that asked it twice gets the second answer, in which the nonce is used or the money
 * gone.
 */
const NOT_SENT =
  /(signature|valid_(after|before)|deadline_expired|not_yet_valid|(recipient|amount|value|token|network|facilitator|name|version)_mismatch)$|^unsupported_|^invalid_(scheme|network|payload|payment_requirements|x402_version)$/;

export interface Settled {
  success: boolean;
  /** What it says to have sent. */
  transaction: string | undefined;
  errorReason?: string | undefined;
  /** It was refused, and nothing was sent to the chain. */
  isRefusal: boolean;
}

export interface RemoteOptions {
  settings: FacilitatorSettings;
  /** CAIP-2. */
  network: string;
  schemes: ReadSchemes;
  log: Pick<Logger, 'warn'>;
  /** What it settles is another by now. */
  onChange?: () => void;
}

export class RemoteFacilitator {
  readonly #base: string;
  readonly #authorize: Authorize;
  readonly #options: RemoteOptions;
  /** Undefined: it has not said yet. */
  #supported: Supported | undefined;
  #failedAt = Number.NEGATIVE_INFINITY;
  #warnedAt = Number.NEGATIVE_INFINITY;
  /** By what was asked: why that failed when it was asked last. */
  readonly #problems = new Map<string, string>();
  /**
   * When payments that were not settled are asked for again, by id: one that never will be must keep neither the others
   * from their turn nor the facilitator busy.
   */
  readonly #again = new Map<string, number>();

  /** @throws Problem `invalid_config` */
  constructor(options: RemoteOptions) {
    this.#options = options;
    this.#base = options.settings.url.replace(/\/+$/, '');
    this.#authorize = authorizer(options.settings);
  }

  /** For the operator: where it is, and what does not work there. */
  status(): FacilitatorStatus {
    const [problem] = [...this.#problems].map(([path, text]) => `/${path}: ${text}`);
    return { host: new URL(this.#base).host, problem };
  }

  /** Longest time for an answer, ms. */
  get timeoutMs(): number {
    return this.#options.settings.timeoutMs;
  }

  /** Asks what it settles. Without an answer, what it said last counts; nothing is offered before the first. */
  async refresh(): Promise<void> {
    let found: Supported;
    try {
      found = await this.supported();
      if (found.size === 0) this.#warn('supported', `it settles nothing by x402 v2 on ${this.#options.network}`);
    } catch (error) {
      return this.#warn('supported', (error as Error).message);
    }
    if (JSON.stringify([...found]) === JSON.stringify([...(this.#supported ?? [])])) return;
    this.#supported = found;
    this.#options.onChange?.();
  }

  /** @returns what it settles on this network. @throws Error whose message holds no secret */
  async supported(): Promise<Supported> {
    const { network, schemes } = this.#options;
    const { kinds, signers } = await this.#ask(supportedAnswer, 'GET', 'supported');
    const ours = kinds.filter((kind) => kind.x402Version === 2 && kind.network === network);
    return schemes({ kinds: ours, signers: signers ?? {} }, this.#supported);
  }

  settles(scheme: Scheme): boolean {
    return this.#supported?.has(scheme) ?? false;
  }

  /** Those that payers by this scheme may sign for; the first is offered. */
  accountsOf(scheme: Scheme): readonly string[] {
    return this.#supported?.get(scheme) ?? [];
  }

  /** What can wait leaves it alone for this time after it failed, ms. */
  get restMs(): number {
    return 2 * this.timeoutMs;
  }

  /** Whether it failed a moment ago, whatever it was asked. */
  get isResting(): boolean {
    return performance.now() - this.#failedAt < this.restMs;
  }

  /** Whether a payment may be asked for again now. */
  mayAsk({ id }: { id: string }): boolean {
    return !this.isResting && (this.#again.get(id) ?? 0) <= performance.now();
  }

  /** What became of a payment when it was asked for. @returns that */
  noted({ id }: { id: string }, result: SettleResult): SettleResult {
    if (result.status === 'unknown') this.#again.set(id, performance.now() + this.restMs);
    else this.#again.delete(id);
    return result;
  }

  /** @throws Problem `payment_invalid` when it would not settle the payment, or does not answer */
  async verify(payload: PaymentPayload, requirements: PaymentRequirements): Promise<void> {
    let answer: z.infer<typeof verifyAnswer>;
    try {
      answer = await this.#ask(verifyAnswer, 'POST', 'verify', { payload, requirements });
    } catch (error) {
      this.#failed('verify', error);
      throw new Problem(
        'payment_invalid',
        'The facilitator that settles x402 payments here does not answer as it should. Nothing was charged; try again in a moment, or pay in another way.',
        { cause: error },
      );
    }
    if (!answer.isValid) throw new Problem('payment_invalid', `x402: ${reason(answer.invalidReason)}.`);
  }

  /** @throws Error when it is not known what became of it */
  async settle(payload: PaymentPayload, requirements: PaymentRequirements): Promise<Settled> {
    try {
      const answer = await this.#ask(settleAnswer, 'POST', 'settle', { payload, requirements });
      const { success, transaction, errorReason } = answer;
      const isRefusal = !success && !transaction && NOT_SENT.test(errorReason ?? '');
      if (!success && !isRefusal && !errorReason?.includes('pending')) this.#warn('settle', reason(errorReason));
      return { success, transaction: transaction ?? undefined, errorReason: errorReason ?? undefined, isRefusal };
    } catch (error) {
      this.#failed('settle', error);
      throw error;
    }
  }

  /** @throws Error whose message quotes neither the key nor a payment */
  async #ask<T>(
    answers: z.ZodType<T>,
    method: 'GET' | 'POST',
    path: string,
    sent?: { payload: PaymentPayload; requirements: PaymentRequirements },
  ): Promise<T> {
    const url = new URL(`${this.#base}/${path}`);
    const body = sent && {
      x402Version: sent.payload.x402Version,
      paymentPayload: sent.payload,
      paymentRequirements: sent.requirements,
    };
    let status: number;
    let text: string;
    try {
      const answer = await fetch(url, {
        method,
        headers: { ...this.#authorize(method, url), ...(body ? { 'content-type': 'application/json' } : {}) },
        ...(body ? { body: JSON.stringify(body) } : {}),
        signal: AbortSignal.timeout(this.timeoutMs),
        // It would take the key, and signed payments, elsewhere.
        redirect: 'error',
      });
      status = answer.status;
      text = await readAtMost(answer, MOST_ANSWER_BYTES);
    } catch (error) {
      const { message, cause } = error as Error;
      throw new Error(String((cause as Error | undefined)?.message ?? message).slice(0, 200));
    }
    const isOk = status >= 200 && status < 300;
    const read = answers.safeParse(parseJson(text));
    // A facilitator may send a valid refusal with any status; anything else needs a 2xx status.
    if (read.success && (isOk || isRefusal(read.data))) {
      this.#problems.delete(path);
      return read.data;
    }
    throw new Error(isOk ? 'its answer is not one of x402' : `it answered ${status}`);
  }

  #failed(path: string, error: unknown): void {
    this.#failedAt = performance.now();
    this.#warn(path, (error as Error).message);
  }

  #warn(path: string, text: string): void {
    this.#problems.set(path, text);
    const now = performance.now();
    if (now - this.#warnedAt < WARN_MS) return;
    this.#warnedAt = now;
    this.#options.log.warn(`the x402 facilitator at ${new URL(this.#base).host}: /${path}: ${text}`);
  }
}

function isRefusal(answer: unknown): boolean {
  const { isValid, success } = answer as { isValid?: unknown; success?: unknown };
  return isValid === false || success === false;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function readAtMost(answer: Response, most: number): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of (answer.body ?? []) as AsyncIterable<Uint8Array>) {
    bytes += part.length;
    if (bytes > most) throw new Error('its answer is too large');
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

/** x402's reason codes are safe to show; anything else is not. */
export function reason(code: string | null | undefined): string {
  return code && /^[a-z0-9_]{3,100}$/i.test(code) ? code : 'the payment was refused';
}
