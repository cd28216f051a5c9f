/**
 * Where an answer is to be sent later, as all three operations take it.
 */
import { invalid, type Query } from './query.ts';

export interface Callback {
  url: string;
  method: 'POST' | 'PUT';
}

/** @throws SpeechFailure */
export function readCallback(query: Query): Callback | undefined {
  const url = query.text('callback');
  const method = query.text('callback_method')?.toUpperCase() ?? 'POST';
  if (method !== 'POST' && method !== 'PUT') throw invalid('callback_method', 'expected POST or PUT');
  if (url === undefined) return undefined;
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !/^https?:$/.test(parsed.protocol)) throw invalid('callback', 'expected an http(s) URL');
  return { url: parsed.href, method };
}
