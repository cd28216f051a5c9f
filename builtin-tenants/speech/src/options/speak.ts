/**
 * Options of /v1/speak, by Deepgram's names (https://developers.deepgram.com/reference/text-to-speech/speak-request).
 */
import { type Callback, readCallback } from './callback.ts';
import { Query } from './query.ts';

export interface SpeakOptions {
  model: string | undefined;
  encoding: string | undefined;
  container: string | undefined;
  sampleRate: number | undefined;
  bitRate: number | undefined;
  speed: number | undefined;
  callback: Callback | undefined;
  tags: string[];
  unknown: string[];
  /** All of them as they were sent, for engines that take them as they are. */
  parameters: URLSearchParams;
}

/** @throws SpeechFailure INVALID_QUERY_PARAMETER */
export function readSpeakOptions(parameters: URLSearchParams): SpeakOptions {
  const query = new Query(parameters);
  const options = {
    model: query.text('model'),
    encoding: query.choice('encoding', ['linear16', 'flac', 'mulaw', 'alaw', 'mp3', 'opus', 'aac']),
    container: query.choice('container', ['none', 'wav', 'ogg']),
    sampleRate: query.number('sample_rate', { min: 8000, max: 48_000, whole: true }),
    bitRate: query.number('bit_rate', { min: 4000, max: 650_000, whole: true }),
    speed: query.number('speed', { min: 0.1, max: 4 }),
    callback: readCallback(query),
    tags: query.list('tag'),
  };
  query.text('mip_opt_out');
  return { ...options, unknown: query.unread(), parameters };
}
