/**
 * The engine process on the same machine, by HTTP through the one address that egress opens for this tenant.
 */
import { SpeechFailure } from '../failure.ts';
import { wantsInsight } from '../options/insight.ts';
import type { ListenOptions } from '../options/listen.ts';
import { wantsPunctuation } from '../shape/listen.ts';
import { type CallOptions, call, readJson } from './call.ts';
import type {
  AudioSource,
  Caller,
  Insight,
  ListenEngine,
  ListenJob,
  ReadEngine,
  ReadJob,
  SpeakEngine,
  SpeakJob,
  Speech,
  Transcript,
  Word,
} from './engine.ts';

/** Audio that the engine measured and keeps. */
export interface KeptAudio {
  id: string;
  bytes: number;
  sha256: string;
  container: string;
  durationMs: number;
  billableMs: number;
  channels: number;
}

interface ListenAnswer {
  sha256: string;
  durationMs: number;
  billableMs: number;
  language?: string;
  engine: { model: string; arch: string; version: string; punctuates: boolean };
  channels: { words: Word[] }[];
  warnings: string[];
}

interface ReadAnswer extends Omit<Insight, 'model' | 'warnings'> {}

const NAME = 'embedded';

export class EmbeddedEngine implements ListenEngine, SpeakEngine, ReadEngine {
  readonly name = NAME;
  readonly readsSsml = true;
  readonly #url: string;

  /** @param url origin without a slash at the end */
  constructor(url: string) {
    this.#url = url;
  }

  async listen({ audio, options, maxBillableMs, caller, signal }: ListenJob): Promise<Transcript> {
    const query = audioQuery(options, maxBillableMs, caller);
    const answer = await this.#json<ListenAnswer>(`/listen?${query}`, upload(audio), {
      name: NAME,
      signal,
      source: audio.broken,
    });
    return {
      kind: 'transcript',
      sha256: answer.sha256,
      durationMs: answer.durationMs,
      billableMs: answer.billableMs,
      language: answer.language,
      model: { name: answer.engine.model, version: answer.engine.version, arch: answer.engine.arch },
      punctuates: answer.engine.punctuates,
      channels: answer.channels,
      warnings: answer.warnings,
    };
  }

  /**
   * Measures audio and keeps it for a remote engine.
   * @throws SpeechFailure PAYMENT_LIMIT_EXCEEDED and the like; SERVICE_UNAVAILABLE when there is no engine process
   */
  async keep({ audio, options, maxBillableMs, caller, signal }: ListenJob): Promise<KeptAudio> {
    const query = audioQuery(options, maxBillableMs, caller);
    return await this.#json<KeptAudio>(`/audio?${query}`, upload(audio), {
      name: NAME,
      signal,
      source: audio.broken,
    });
  }

  async kept(facts: KeptAudio, signal: AbortSignal): Promise<AudioSource> {
    const response = await call(`${this.#url}/audio/${facts.id}`, {}, { name: NAME, signal });
    if (!response.ok || response.body === null) throw await failureOf(response, { name: NAME, signal });
    const extension = facts.container === 'mp4' ? 'm4a' : facts.container;
    return {
      body: response.body,
      type: 'application/octet-stream',
      extension,
      length: facts.bytes,
    };
  }

  async drop(id: string): Promise<void> {
    await fetch(`${this.#url}/audio/${id}`, { method: 'DELETE' }).catch(() => undefined);
  }

  async speak({ text, parts, options, signal }: SpeakJob): Promise<Speech> {
    const { model, encoding, container, sampleRate, bitRate, speed } = options;
    const body = JSON.stringify({ text: parts ?? text, model, encoding, container, sampleRate, bitRate, speed });
    const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body };
    const response = await call(`${this.#url}/speak`, init, { name: NAME, signal });
    if (!response.ok || response.body === null) throw await failureOf(response, { name: NAME, signal });
    return {
      body: response.body,
      contentType: response.headers.get('content-type') ?? 'application/octet-stream',
      model: `${response.headers.get('x-engine')}-${response.headers.get('x-voice')?.replace(/^.*\//, '')}`,
      warnings: JSON.parse(decodeURIComponent(response.headers.get('x-warnings') ?? '%5B%5D')) as string[],
    };
  }

  async read({ text, language, options, signal }: ReadJob): Promise<Insight> {
    const init = {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ text, ...options }),
    };
    const answer = await this.#json<ReadAnswer>('/read', init, { name: NAME, signal });
    const foreign = language !== undefined && !/^en\b/i.test(language);
    const warnings = foreign ? [`language=${language}: the embedded engine reads English`] : [];
    return { ...answer, model: 'wink-nlp-use-vader-textrank', warnings };
  }

  /** What the engine says of itself, or why it says nothing. */
  async health(): Promise<Record<string, unknown>> {
    const options = { name: NAME, signal: AbortSignal.timeout(2000) };
    const response = await call(`${this.#url}/health`, {}, options);
    if (!response.ok) throw await failureOf(response, options);
    return await readJson(response, options);
  }

  async #json<Answer>(path: string, init: RequestInit, options: CallOptions): Promise<Answer> {
    const response = await call(`${this.#url}${path}`, init, options);
    if (!response.ok) throw await failureOf(response, options);
    // both ends of this protocol are ours and are deployed together
    return (await readJson(response, options)) as unknown as Answer;
  }
}

function upload(audio: AudioSource): RequestInit {
  return { method: 'POST', headers: { 'content-type': 'application/octet-stream' }, body: audio.body };
}

function audioQuery(options: ListenOptions, maxBillableMs: number, caller: Caller): URLSearchParams {
  const query = new URLSearchParams({ max_billable_ms: String(maxBillableMs) });
  if (caller.payer !== undefined) query.set('payer', caller.payer);
  if (caller.address !== undefined) query.set('address', caller.address);
  if (options.multichannel) query.set('multichannel', 'true');
  if (options.special.includes('diarize')) query.set('diarize', 'true');
  if (wantsPunctuation(options) || wantsInsight(options.insight)) query.set('punctuate', 'true');
  if (options.language !== undefined) query.set('language', options.language);
  if (options.raw !== undefined) {
    query.set('encoding', options.raw.encoding);
    query.set('sample_rate', String(options.raw.sampleRate));
    query.set('channels', String(options.raw.channels));
  }
  return query;
}

/** What the engine refused, as callers see it. */
export async function failureOf(response: Response, options: CallOptions): Promise<SpeechFailure> {
  const body = await readJson(response, options).catch(() => ({}) as Record<string, unknown>);
  const message = typeof body.message === 'string' ? body.message : 'The speech engine failed; try again.';
  const retryAfter = typeof body.retryAfter === 'number' ? body.retryAfter : undefined;
  switch (body.code) {
    case 'bad_request':
      return new SpeechFailure('INVALID_BODY', message);
    case 'unsupported_audio':
      return new SpeechFailure('UNSUPPORTED_AUDIO', message);
    case 'too_expensive':
      return new SpeechFailure('PAYMENT_LIMIT_EXCEEDED', message, { extra: { billable_ms: body.billableMs } });
    case 'too_large':
    case 'too_long':
      return new SpeechFailure('PAYLOAD_TOO_LARGE', message);
    case 'unsupported_option':
      return new SpeechFailure('UNPROCESSABLE_OPTION', message);
    case 'queue_full':
      return new SpeechFailure('TOO_MANY_REQUESTS', message, { retryAfter: retryAfter ?? 5 });
    case 'timeout':
      return new SpeechFailure('TIMEOUT', message);
    case 'no_engine':
      return new SpeechFailure('SERVICE_UNAVAILABLE', message, { retryAfter: 60 });
    case 'internal':
      return new SpeechFailure('INTERNAL_SERVER_ERROR', message);
    case 'egress_limit':
      // of the host: as many requests of this service are under way as may be
      return new SpeechFailure('TOO_MANY_REQUESTS', 'Too many calls are under way; try again in 5 s.', {
        retryAfter: 5,
      });
    default:
      // not the engine's own words: egress says that there is no engine
      return new SpeechFailure(
        'SERVICE_UNAVAILABLE',
        'The speech engine does not answer. While it starts, try again in 5 s; the operator may also have switched it off (speech.engine), and can name another engine for this service.',
        { retryAfter: 5 },
      );
  }
}
