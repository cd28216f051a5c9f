/**
 * One transcription from spooled audio to words: decode, measure, refuse what would cost more than was held, transcribe.
 */

import type { RawFormat } from '../audio/container.ts';
import type { Decoder } from '../audio/decode.ts';
import type { Settings } from '../settings.ts';
import type { SpooledAudio } from '../spool.ts';
import type { Helpers } from './helpers.ts';
import type { HeardWord, Transcriber } from './transcriber.ts';

export interface ListenRequest {
  multichannel: boolean;
  language: string | undefined;
  raw: RawFormat | undefined;
  /** Speakers are to be told apart. */
  diarize: boolean;
  /** Words are wanted as they are written. */
  punctuate: boolean;
  /** The most that may be charged for, in milliseconds over all channels; undefined: no bound but the settings'. */
  maxBillableMs: number | undefined;
  /** Of the caller: payer, address. */
  names: string[];
}

/** The wire form of a transcription. */
export interface ListenAnswer {
  sha256: string;
  bytes: number;
  durationMs: number;
  /** durationMs times the channels that were worked on. */
  billableMs: number;
  language?: string;
  engine: { model: string; arch: string; version: string; punctuates: boolean };
  channels: { words: HeardWord[] }[];
  warnings: string[];
}

export interface Measured {
  files: string[];
  durationMs: number;
  billableMs: number;
}

/** @throws EngineFailure too_expensive with `billableMs`, and what decoding throws */
export async function measure(
  audio: SpooledAudio,
  request: ListenRequest,
  decoder: Decoder,
  limits: Settings['limits'],
  signal: AbortSignal,
): Promise<Measured> {
  const options = {
    multichannel: request.multichannel,
    raw: request.raw,
    maxSeconds: limits.audioSeconds,
    maxBillableMs: request.maxBillableMs,
    maxChannels: limits.channels,
    timeoutMs: limits.decodeSeconds * 1000,
  };
  const { files, durationMs } = await decoder.decode(audio, options, signal);
  return { files, durationMs, billableMs: durationMs * files.length };
}

export async function transcribe(
  audio: SpooledAudio,
  measured: Measured,
  request: ListenRequest,
  transcriber: Transcriber,
  helpers: Helpers,
  job: { signal: AbortSignal; timeoutMs: number },
): Promise<ListenAnswer> {
  const warnings: string[] = [];
  const { languages } = transcriber;
  if (request.language !== undefined && languages !== undefined && !hears(languages, request.language)) {
    warnings.push(`language=${request.language}: ${transcriber.model} hears ${languages[0]} only`);
  }
  const wants = {
    speakers: request.diarize && helpers.tellsSpeakers,
    marks: request.punctuate && !transcriber.punctuates && helpers.punctuates,
  };
  if (request.diarize && !wants.speakers)
    warnings.push('diarize: no models that tell speakers apart are installed here (turnpike speech models)');
  const channels: ListenAnswer['channels'] = [];
  let language: string | undefined;
  for (const file of measured.files) {
    const { durationMs } = measured;
    const heard = await transcriber.transcribe({
      file,
      folder: audio.folder,
      durationMs,
      language: request.language,
      ...job,
    });
    language ??= heard.language;
    // each once, however many channels
    warnings.push(...(heard.warnings ?? []).filter((warning) => !warnings.includes(warning)));
    channels.push({ words: await helpers.help(heard.words, wants, { file, folder: audio.folder, ...job }) });
  }
  return {
    sha256: audio.sha256,
    bytes: audio.bytes,
    durationMs: measured.durationMs,
    billableMs: measured.billableMs,
    ...(language === undefined ? {} : { language }),
    engine: {
      model: transcriber.model,
      arch: transcriber.arch,
      version: transcriber.version,
      punctuates: transcriber.punctuates || wants.marks,
    },
    channels,
    warnings,
  };
}

function hears(languages: string[], asked: string): boolean {
  return asked === 'multi' || languages.some((known) => known.toLowerCase() === asked.toLowerCase());
}
