/**
 * Servers that speak OpenAI's API: speaches, whisper.cpp's server, LocalAI, Kokoro, OpenAI itself.
 * Transcription is asked for with word times (`timestamp_granularities[]`, with the brackets), speech as a whole file.
 */
import { z } from 'zod';
import { SpeechFailure } from '../failure.ts';
import type { ListenOptions } from '../options/listen.ts';
import type { SpeakOptions } from '../options/speak.ts';
import { bareWord } from '../shape/words.ts';
import { call, readBytes, readJson, refusal } from './call.ts';
import type { EmbeddedEngine } from './embedded.ts';
import type { ListenEngine, ListenJob, SpeakEngine, SpeakJob, Speech, Transcript, Word } from './engine.ts';
import { checkBillable, withMeasuredAudio } from './measured.ts';
import { streamMultipart } from './multipart.ts';

const NAME = 'OpenAI-compatible';
const SPEECH_BYTES = 16 * 1024 * 1024;

export interface OpenaiSettings {
  /** Without `/v1`. */
  baseUrl: string;
  apiKey: string;
  transcribeModel: string;
  speechModel: string;
  voice: string;
  chatModel: string;
}

const wordSchema = z.object({
  word: z.string(),
  start: z.number(),
  end: z.number(),
  probability: z.number().optional(),
});

/** `response_format=verbose_json`. Words sit at the top (OpenAI, speaches) or in the segments (whisper.cpp). */
const transcriptionSchema = z.object({
  text: z.string().default(''),
  language: z.string().optional(),
  duration: z.coerce.number().optional(),
  words: z.array(wordSchema).nullish(),
  segments: z
    .array(
      z.object({
        start: z.number(),
        end: z.number(),
        text: z.string(),
        avg_logprob: z.number().optional(),
        words: z.array(wordSchema).nullish(),
      }),
    )
    .nullish(),
});

type Transcription = z.output<typeof transcriptionSchema>;

export class OpenaiEngine implements ListenEngine, SpeakEngine {
  readonly name = 'openai';
  readonly readsSsml = false;
  readonly #settings: OpenaiSettings;
  readonly #measuring: EmbeddedEngine | undefined;

  /** @param measuring undefined: the engine process does not run */
  constructor(settings: OpenaiSettings, measuring: EmbeddedEngine | undefined) {
    this.#settings = settings;
    this.#measuring = measuring;
  }

  async listen(job: ListenJob): Promise<Transcript> {
    if (job.options.raw !== undefined) {
      throw new SpeechFailure('UNPROCESSABLE_OPTION', 'This engine takes no raw samples; send WAV, MP3, FLAC or Ogg.');
    }
    const mixed = { ...job, options: { ...job.options, multichannel: false } };
    return await withMeasuredAudio(mixed, this.#measuring, async ({ audio, measured }) => {
      const options = { name: NAME, signal: job.signal, source: audio.broken };
      const { contentType, body } = streamMultipart(this.#fields(job.options), {
        name: `audio.${audio.extension ?? extensionOf(audio.type)}`,
        body: audio.body,
        length: audio.length,
      });
      const response = await call(
        `${this.#settings.baseUrl}/v1/audio/transcriptions`,
        { method: 'POST', headers: { ...this.#authorization(), 'content-type': contentType }, body },
        options,
      );
      if (response.status !== 200) throw await refusal(response, options);
      const parsed = transcriptionSchema.safeParse(await readJson(response, options));
      if (!parsed.success) {
        throw new SpeechFailure('UPSTREAM_ERROR', 'The OpenAI-compatible engine gave no transcription; try again.');
      }
      const durationMs = measured?.durationMs ?? durationOf(parsed.data);
      const untimed = withoutTimes(parsed.data);
      return {
        kind: 'transcript',
        sha256: measured?.sha256 ?? '',
        durationMs,
        billableMs: checkBillable(measured?.billableMs ?? durationMs, job.maxBillableMs),
        language: languageCode(parsed.data.language) ?? job.options.language,
        model: { name: this.#settings.transcribeModel, version: '', arch: 'openai-compatible' },
        punctuates: true,
        channels: [{ words: untimed ? laidOut(parsed.data.text, 0, durationMs / 1000, 1) : wordsOf(parsed.data) }],
        warnings: [
          ...(job.options.multichannel ? ['multichannel: channels were mixed into one'] : []),
          ...(untimed ? ['words: the engine gives no times; they are laid out evenly'] : []),
        ],
      };
    });
  }

  async speak({ text, options, signal }: SpeakJob): Promise<Speech> {
    const { format, contentType } = speechFormat(options);
    const context = { name: NAME, signal };
    const ours = options.model === undefined || /^aura-/.test(options.model);
    const voice = ours ? this.#settings.voice : (options.model ?? this.#settings.voice);
    const response = await call(
      `${this.#settings.baseUrl}/v1/audio/speech`,
      {
        method: 'POST',
        headers: { ...this.#authorization(), 'content-type': 'application/json' },
        body: JSON.stringify({
          model: this.#settings.speechModel,
          voice,
          input: text,
          response_format: format,
          ...(options.speed === undefined ? {} : { speed: options.speed }),
        }),
      },
      context,
    );
    if (response.status !== 200) throw await refusal(response, context);
    // an answer is charged when its first byte leaves, so all of it is here before
    const body = await readBytes(response, SPEECH_BYTES, context);
    if (body.byteLength === 0) {
      throw new SpeechFailure('UPSTREAM_ERROR', 'The OpenAI-compatible engine sent no audio; try again.');
    }
    return {
      body,
      contentType,
      model: `${this.#settings.speechModel}-${voice}`,
      warnings: speechWarnings(options, voice),
    };
  }

  #fields({ language }: ListenOptions): [string, string][] {
    return [
      ['model', this.#settings.transcribeModel],
      ['response_format', 'verbose_json'],
      ['timestamp_granularities[]', 'word'],
      ['timestamp_granularities[]', 'segment'],
      ...(language === undefined || language === 'multi'
        ? []
        : [['language', language.split('-')[0] ?? language] satisfies [string, string]]),
    ];
  }

  #authorization(): Record<string, string> {
    return this.#settings.apiKey === '' ? {} : { authorization: `Bearer ${this.#settings.apiKey}` };
  }
}

/** Words as they are given; from segments without words they are laid out evenly. */
export function wordsOf({ words, segments }: Transcription): Word[] {
  const given = words?.length ? words : segments?.flatMap((segment) => segment.words ?? []);
  if (given?.length) {
    const confidenceAt = (time: number) => {
      const segment = segments?.find(({ start, end }) => time >= start && time <= end);
      return segment?.avg_logprob === undefined ? 1 : Math.exp(segment.avg_logprob);
    };
    return given.flatMap(({ word, start, end, probability }) =>
      spelled(word.trim(), start, end, probability ?? confidenceAt(start)),
    );
  }
  return (segments ?? []).flatMap(({ text, start, end, avg_logprob: logprob }) => {
    return laidOut(text, start, end, logprob === undefined ? 1 : Math.exp(logprob));
  });
}

/** Whether the server told what was said and not when: some know `text` alone. */
function withoutTimes({ text, words, segments }: Transcription): boolean {
  return text.trim() !== '' && !words?.length && !segments?.length;
}

function laidOut(text: string, start: number, end: number, confidence: number): Word[] {
  const pieces = text.trim().split(/\s+/).filter(Boolean);
  const each = (end - start) / Math.max(1, pieces.length);
  return pieces.flatMap((piece, at) => spelled(piece, start + at * each, start + (at + 1) * each, confidence));
}

function spelled(punctuated: string, start: number, end: number, confidence: number): Word[] {
  const word = bareWord(punctuated);
  return word === '' ? [] : [{ word, punctuated, start, end, confidence: Math.max(0, Math.min(1, confidence)) }];
}

/** Of audio that was not measured here. @throws SpeechFailure UPSTREAM_ERROR where nothing tells what to charge */
function durationOf(answer: Transcription): number {
  const { duration, segments } = answer;
  const seconds = duration ?? segments?.at(-1)?.end ?? wordsOf(answer).at(-1)?.end;
  if (seconds === undefined && withoutTimes(answer)) {
    throw new SpeechFailure(
      'UPSTREAM_ERROR',
      'The OpenAI-compatible engine did not say how long the audio is; the operator can switch on speech.engine, which measures it.',
    );
  }
  return Math.ceil((seconds ?? 0) * 1000);
}

const LANGUAGE_CODES: Record<string, string> = {
  english: 'en',
  spanish: 'es',
  french: 'fr',
  german: 'de',
  italian: 'it',
  portuguese: 'pt',
  dutch: 'nl',
  japanese: 'ja',
  korean: 'ko',
  chinese: 'zh',
  russian: 'ru',
  hindi: 'hi',
};

/** OpenAI names languages in English, others by code. */
function languageCode(name: string | undefined): string | undefined {
  if (name === undefined) return undefined;
  return LANGUAGE_CODES[name.toLowerCase()] ?? (/^[a-z]{2,3}$/i.test(name) ? name.toLowerCase() : undefined);
}

/** Servers tell the container by the name. */
function extensionOf(type: string): string {
  const known: Record<string, string> = {
    'audio/wav': 'wav',
    'audio/x-wav': 'wav',
    'audio/wave': 'wav',
    'audio/flac': 'flac',
    'audio/ogg': 'ogg',
    'audio/webm': 'webm',
    'video/webm': 'webm',
    'audio/mp4': 'm4a',
    'video/mp4': 'mp4',
    'audio/aac': 'aac',
  };
  return known[type] ?? 'mp3';
}

function speechFormat({ encoding = 'mp3', container }: SpeakOptions): { format: string; contentType: string } {
  switch (encoding) {
    case 'mp3':
      return { format: 'mp3', contentType: 'audio/mpeg' };
    case 'linear16':
      return container === 'none'
        ? { format: 'pcm', contentType: 'audio/l16;rate=24000;channels=1' }
        : { format: 'wav', contentType: 'audio/wav' };
    case 'flac':
      return { format: 'flac', contentType: 'audio/flac' };
    case 'opus':
      return { format: 'opus', contentType: 'audio/ogg;codecs=opus' };
    case 'aac':
      return { format: 'aac', contentType: 'audio/aac' };
    default:
      throw new SpeechFailure(
        'UNPROCESSABLE_OPTION',
        `encoding=${encoding} is not available from this engine; choose mp3, linear16, flac, opus or aac.`,
      );
  }
}

function speechWarnings(options: SpeakOptions, voice: string): string[] {
  const warnings: string[] = [];
  if (options.model?.startsWith('aura-')) warnings.push(`model=${options.model}: spoken by ${voice}`);
  if (options.sampleRate !== undefined) warnings.push(`sample_rate=${options.sampleRate}: the engine chooses its own`);
  if (options.bitRate !== undefined) warnings.push(`bit_rate=${options.bitRate}: the engine chooses its own`);
  return warnings;
}
