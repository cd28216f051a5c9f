/**
 * Which answers a cache keeps and until when (RFC 9111), as Cloudflare documents it for `put()`. An answer is in a shared
 * cache here: whoever calls the handler may get it.
 */
import type { Fields } from '../store-process/calls/call.ts';
import { MAX_FIELDS } from './limits.ts';

export interface AnswerHead {
  status: number;
  /** Names and values in turn, a character for each byte. */
  fields: Fields;
}

/** A head as it is kept. */
export interface KeptHead extends AnswerHead {
  /** When the answer was made, ms: what it is old when it is given counts from here. */
  born: number;
  /** Until when it may be given, ms. */
  until: number;
}

/** Of the connection, or written anew with each answer. */
const DROPPED = new Set([
  'age',
  'cf-cache-status',
  'connection',
  'content-length',
  'keep-alive',
  'proxy-authenticate',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Seconds that an answer is kept which says nothing of it, by its status
 * (https://developers.cloudflare.com/cache/how-to/configure-cache-status-code/#edge-ttl).
 */
const DEFAULT_SECONDS: Readonly<Record<number, number>> = {
  200: 7_200,
  301: 7_200,
  302: 1_200,
  303: 1_200,
  404: 180,
  410: 180,
};
/** Longer is as good as for ever (RFC 9111, 1.2.2). */
const MOST_SECONDS = 2 ** 31;

const STATUS_LINE = /^HTTP\/1\.[01] ([2-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const FIELD_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[\t ]*([\t\x20-\x7e\x80-\xff]*)$/;
/** A directive, and its argument with or without quotes. */
const DIRECTIVE = /([^\s=,;"]+)(?:\s*=\s*(?:"([^"]*)"|([^\s,;"]*)))?/g;

/** @param text of the head without its empty line, in latin1 @returns undefined: it could not be given as it is */
export function parseAnswerHead(text: string): AnswerHead | undefined {
  const [first = '', ...lines] = text.split('\r\n');
  const status = STATUS_LINE.exec(first)?.[1];
  if (status === undefined || lines.length > MAX_FIELDS) return undefined;
  const fields: string[] = [];
  for (const line of lines) {
    const [, name, value] = FIELD_LINE.exec(line) ?? [];
    if (name === undefined || value === undefined) return undefined;
    fields.push(name, value.trimEnd());
  }
  return { status: Number(status), fields };
}

/** All values of a field, joined (RFC 9110, 5.3); undefined: there is none. @param name in lower case */
export function fieldOf(fields: Fields, name: string): string | undefined {
  let found: string | undefined;
  for (let at = 0; at < fields.length; at += 2) {
    if (fields[at]?.toLowerCase() !== name) continue;
    found = found === undefined ? fields[at + 1] : `${found}, ${fields[at + 1]}`;
  }
  return found;
}

/**
 * @param authorized the request that is the key has credentials
 * @param now ms
 * @returns undefined: it must not be kept. What ends at once takes the place of what was there before.
 */
export function keptHead(head: AnswerHead, authorized: boolean, now: number): KeptHead | undefined {
  const { status, fields } = head;
  const directives = directivesOf(fieldOf(fields, 'cache-control') ?? '');
  if (status === 206 || status === 304 || directives.has('no-store')) return undefined;
  const withheld = new Set<string>();
  for (const name of ['private', 'no-cache']) {
    const argument = directives.get(name);
    if (argument === undefined) continue;
    // With names of fields it is about these alone.
    if (argument === '') return undefined;
    for (const field of argument.split(',')) withheld.add(field.trim().toLowerCase());
  }
  const has = (name: string) => fieldOf(fields, name) !== undefined && !withheld.has(name);
  if (has('set-cookie') || fieldOf(fields, 'vary')?.includes('*')) return undefined;
  if (authorized && !['public', 'must-revalidate', 's-maxage'].some((name) => directives.has(name))) return undefined;

  const seconds = lifetime(status, fields, directives, now);
  if (seconds === undefined) return undefined;
  const born = now - secondsOf(fieldOf(fields, 'age') ?? '0') * 1_000;
  const kept: string[] = [];
  for (let at = 0; at < fields.length; at += 2) {
    const [name = '', value = ''] = [fields[at], fields[at + 1]];
    const lower = name.toLowerCase();
    if (!DROPPED.has(lower) && !withheld.has(lower)) kept.push(name, value);
  }
  const until = Math.floor(born + Math.min(seconds, MOST_SECONDS) * 1_000);
  return { status, fields: kept, born, until };
}

function lifetime(
  status: number,
  fields: Fields,
  directives: ReadonlyMap<string, string>,
  now: number,
): number | undefined {
  const said = directives.get('s-maxage') ?? directives.get('max-age');
  if (said !== undefined) return secondsOf(said);
  const expires = fieldOf(fields, 'expires');
  if (expires === undefined) return DEFAULT_SECONDS[status];
  const made = Date.parse(fieldOf(fields, 'date') ?? '');
  // What is no date, such as 0, is over (RFC 9111, 5.3).
  return (Date.parse(expires) - (Number.isNaN(made) ? now : made)) / 1_000 || 0;
}

/** What is no number counts as none: the answer is then old already. */
function secondsOf(text: string): number {
  return /^\d+$/.test(text) ? Math.min(Number(text), MOST_SECONDS) : 0;
}

/** By name in lower case; of those given twice the first. */
function directivesOf(control: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const [, name = '', quoted, plain] of control.matchAll(DIRECTIVE)) {
    const lower = name.toLowerCase();
    if (!found.has(lower)) found.set(lower, quoted ?? plain ?? '');
  }
  return found;
}
