/**
 * Deepgram itself: requests go through as they are, with the operator's key; answers come back as they are.
 */
import { SpeechFailure } from '../failure.ts';
import type { InsightOptions } from '../options/insight.ts';
import type { ListenOptions } from '../options/listen.ts';
import type { SpeakOptions } from '../options/speak.ts';
import { call, readBytes, readJson, refusal } from './call.ts';
import type { EmbeddedEngine } from './embedded.ts';
import type {
  FinishedAnswer,
  Insight,
  ListenEngine,
  ListenJob,
  ReadEngine,
  ReadJob,
  SpeakEngine,
  SpeakJob,
  Speech,
} from './engine.ts';
import { checkBillable, withMeasuredAudio } from './measured.ts';

const NAME = 'Deepgram';
const SPEECH_BYTES = 16 * 1024 * 1024;

export interface DeepgramSettings {
  baseUrl: string;
  apiKey: string;
}

export class DeepgramEngine implements ListenEngine, SpeakEngine, ReadEngine {
  readonly name = 'deepgram';
  readonly readsSsml = false;
  readonly #settings: DeepgramSettings;
  readonly #measuring: EmbeddedEngine | undefined;

  /** @param measuring undefined: the engine process does not run */
  constructor(settings: DeepgramSettings, measuring: EmbeddedEngine | undefined) {
    this.#settings = settings;
    this.#measuring = measuring;
  }

  async listen(job: ListenJob): Promise<FinishedAnswer> {
    return await withMeasuredAudio(job, this.#measuring, async ({ audio, measured }) => {
      const { signal } = job;
      const options = { name: NAME, signal, source: audio.broken };
      const type = audio.type || 'application/octet-stream';
      const response = await this.#post(`/v1/listen?${listenQuery(job.options)}`, type, audio.body, options);
      const body = await readJson(response, options);
      const billableMs = measured?.billableMs ?? billableOf(body);
      return { kind: 'finished', body, billableMs: checkBillable(billableMs, job.maxBillableMs) };
    });
  }

  async speak({ text, options, signal }: SpeakJob): Promise<Speech> {
    const context = { name: NAME, signal };
    const body = JSON.stringify({ text });
    const response = await this.#post(`/v1/speak?${speakQuery(options)}`, 'application/json', body, context);
    // an answer is charged when its first byte leaves, so all of it is here before
    const audio = await readBytes(response, SPEECH_BYTES, context);
    if (audio.byteLength === 0)
      throw new SpeechFailure('UPSTREAM_ERROR', 'The Deepgram engine sent no audio; try again.');
    return {
      body: audio,
      contentType: response.headers.get('content-type') ?? 'audio/mpeg',
      model: response.headers.get('dg-model-name') ?? options.model ?? 'deepgram',
      warnings: [],
    };
  }

  async read({ text, language, options, signal }: ReadJob): Promise<Insight> {
    const context = { name: NAME, signal };
    const query = insightQuery(options);
    query.set('language', language ?? 'en');
    const response = await this.#post(`/v1/read?${query}`, 'application/json', JSON.stringify({ text }), context);
    const { results } = await readJson(response, context);
    if (typeof results !== 'object' || results === null) {
      throw new SpeechFailure('UPSTREAM_ERROR', 'The Deepgram engine answered without results; try again.');
    }
    return { ...results, words: text.split(/\s+/).filter(Boolean).length, model: 'deepgram', warnings: [] };
  }

  async #post(
    path: string,
    type: string,
    body: NonNullable<RequestInit['body']>,
    options: Parameters<typeof call>[2],
  ): Promise<Response> {
    const headers = { authorization: `Token ${this.#settings.apiKey}`, 'content-type': type };
    const response = await call(`${this.#settings.baseUrl}${path}`, { method: 'POST', headers, body }, options);
    if (response.status !== 200) throw await refusal(response, options);
    return response;
  }
}

/** All that the caller asked for, but the callback: this service delivers it itself, and charges before. */
function listenQuery({ parameters }: ListenOptions): URLSearchParams {
  const query = new URLSearchParams(parameters);
  for (const name of ['callback', 'callback_method']) query.delete(name);
  return query;
}

function speakQuery({ parameters }: SpeakOptions): URLSearchParams {
  const query = new URLSearchParams(parameters);
  for (const name of ['callback', 'callback_method']) query.delete(name);
  return query;
}

function insightQuery(options: InsightOptions): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of ['summarize', 'topics', 'intents', 'sentiment'] as const)
    if (options[name]) query.set(name, 'true');
  for (const topic of options.customTopics) query.append('custom_topic', topic);
  for (const intent of options.customIntents) query.append('custom_intent', intent);
  if (options.customTopics.length > 0) query.set('custom_topic_mode', options.customTopicMode);
  if (options.customIntents.length > 0) query.set('custom_intent_mode', options.customIntentMode);
  return query;
}

/** Of an answer that was not measured beforehand: seconds times channels, as Deepgram bills. */
function billableOf(body: Record<string, unknown>): number {
  const { metadata } = body;
  const { duration, channels } = { duration: undefined, channels: 1, ...(metadata as object | undefined) };
  if (typeof duration !== 'number' || duration < 0) {
    throw new SpeechFailure('UPSTREAM_ERROR', 'The Deepgram engine did not say how long the audio is; try again.');
  }
  return Math.ceil(duration * 1000) * (typeof channels === 'number' && channels > 0 ? channels : 1);
}
