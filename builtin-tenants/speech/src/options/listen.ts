/**
 * Options of /v1/listen, by Deepgram's names (https://developers.deepgram.com/reference/speech-to-text/listen-pre-recorded).
 */

import type { Replacement } from '../shape/terms.ts';
import { type Callback, readCallback } from './callback.ts';
import { type InsightOptions, readInsightOptions } from './insight.ts';
import { invalid, Query } from './query.ts';

export interface RawAudio {
  encoding: 'linear16' | 'linear32' | 'mulaw' | 'alaw';
  sampleRate: number;
  channels: number;
}

export interface ListenOptions {
  model: string | undefined;
  language: string | undefined;
  detectLanguage: boolean;
  punctuate: boolean;
  smartFormat: boolean;
  paragraphs: boolean;
  utterances: boolean;
  /** Seconds of silence between utterances. */
  utteranceSplit: number;
  multichannel: boolean;
  /** English numbers in digits. */
  numerals: boolean;
  search: string[];
  replace: Replacement[];
  raw: RawAudio | undefined;
  insight: InsightOptions;
  callback: Callback | undefined;
  tags: string[];
  /** `key:value` pairs that come back as they are. */
  extra: Record<string, string>;
  /** Options that only some engines honour, and that were asked for. */
  special: string[];
  /** Keys that mean nothing to Deepgram's API as it is known here. */
  unknown: string[];
  /** All of them as they were sent, for engines that take them as they are. */
  parameters: URLSearchParams;
}

/** Honoured by Deepgram alone. */
const SPECIAL = [
  'diarize',
  'diarize_model',
  'diarize_version',
  'detect_entities',
  'dictation',
  'filler_words',
  'keyterm',
  'keywords',
  'measurements',
  'profanity_filter',
  'redact',
  'version',
  'bit_rate',
  'container',
] as const;

/** Mean nothing to the work itself. */
const IGNORED = ['mip_opt_out'] as const;

const MOST_TERMS = 100;
const LONGEST_TERM = 200;

const RAW_ENCODINGS = ['linear16', 'linear32', 'mulaw', 'alaw'] as const;
/** Compressed audio says itself what it is; the hint is taken and not needed. */
const SELF_DESCRIBING = ['flac', 'mp3', 'opus', 'ogg-opus', 'amr-nb', 'amr-wb', 'speex', 'aac', 'wav'];

/** @throws SpeechFailure INVALID_QUERY_PARAMETER */
export function readListenOptions(parameters: URLSearchParams): ListenOptions {
  const query = new Query(parameters);
  const detect = query.list('detect_language');
  const options = {
    model: query.text('model'),
    language: language(query),
    detectLanguage: detect.some((value) => value !== 'false'),
    punctuate: query.flag('punctuate'),
    smartFormat: query.flag('smart_format'),
    paragraphs: query.flag('paragraphs'),
    utterances: query.flag('utterances'),
    utteranceSplit: query.number('utt_split', { min: 0.01, max: 60 }) ?? 0.8,
    multichannel: query.flag('multichannel'),
    numerals: query.flag('numerals'),
    // one asked for a hundred times is found once: answers do not grow with it
    search: [...new Set(terms(query, 'search'))],
    replace: terms(query, 'replace').map(replacement),
    raw: rawAudio(query),
    insight: readInsightOptions(query),
    callback: readCallback(query),
    tags: query.list('tag'),
    extra: extra(query),
    special: SPECIAL.filter((name) => query.asked(name)),
  };
  for (const name of IGNORED) query.text(name);
  return { ...options, unknown: query.unread(), parameters };
}

function terms(query: Query, name: string): string[] {
  const values = query.list(name);
  if (values.length > MOST_TERMS) throw invalid(name, `at most ${MOST_TERMS}`);
  if (values.some((value) => value.length > LONGEST_TERM))
    throw invalid(name, `at most ${LONGEST_TERM} characters each`);
  return values;
}

/** `find:by`; without `by` what is found is left out. */
function replacement(value: string): Replacement {
  const colon = value.includes(':') ? value.indexOf(':') : value.length;
  if (value.slice(0, colon).trim() === '') throw invalid('replace', 'expected find:replacement');
  return { find: value.slice(0, colon), by: value.slice(colon + 1).trim() };
}

function language(query: Query): string | undefined {
  const value = query.text('language');
  if (value !== undefined && !/^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$/.test(value)) {
    throw invalid('language', 'expected a BCP 47 tag such as en or pt-BR');
  }
  return value;
}

function rawAudio(query: Query): RawAudio | undefined {
  const asked = query.text('encoding');
  const sampleRate = query.number('sample_rate', { min: 4000, max: 192_000, whole: true });
  const channels = query.number('channels', { min: 1, max: 8, whole: true }) ?? 1;
  if (asked === undefined || SELF_DESCRIBING.includes(asked)) return undefined;
  const encoding = RAW_ENCODINGS.find((name) => name === asked);
  if (encoding === undefined) {
    throw invalid('encoding', `expected ${[...RAW_ENCODINGS, ...SELF_DESCRIBING].join(', ')}`);
  }
  if (sampleRate === undefined) throw invalid('sample_rate', `needed with encoding=${encoding}`);
  return { encoding, sampleRate, channels };
}

function extra(query: Query): Record<string, string> {
  const pairs = query.list('extra').map((value) => {
    const colon = value.indexOf(':');
    if (colon <= 0) throw invalid('extra', 'expected key:value');
    return [value.slice(0, colon), value.slice(colon + 1)] as const;
  });
  return Object.fromEntries(pairs);
}
