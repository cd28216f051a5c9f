/** What a kept answer becomes for a request with conditions or a range (RFC 9110, 13.2.2), as Cloudflare's `match()`. */
import { matches, rangeOf } from '../../http/message/conditions.ts';
import type { Fields } from '../store-process/calls/call.ts';
import { fieldOf } from './freshness.ts';

/** Fields of the request. */
export interface Asked {
  ifNoneMatch?: string | undefined;
  ifModifiedSince?: string | undefined;
  ifRange?: string | undefined;
  range?: string | undefined;
}

export interface Reply {
  status: number;
  /** Beside those of the answer. */
  fields: Fields;
  /** Of the body. */
  from: number;
  length: number;
}

export function replyTo(
  { status, fields, size }: { status: number; fields: Fields; size: number },
  asked: Asked,
): Reply {
  if (status >= 200 && status < 300 && isUnchanged(fields, asked))
    return { status: 304, fields: [], from: 0, length: 0 };
  const isWanted = status === 200 && asked.range !== undefined && isSame(fields, asked.ifRange);
  const range = isWanted ? rangeOf(asked.range, size) : undefined;
  if (range === undefined) return { status, fields: [], from: 0, length: size };
  if (range === 'none') return { status: 416, fields: ['Content-Range', `bytes */${size}`], from: 0, length: 0 };
  const [from, to] = range;
  return { status: 206, fields: ['Content-Range', `bytes ${from}-${to - 1}/${size}`], from, length: to - from };
}

function isUnchanged(fields: Fields, { ifNoneMatch, ifModifiedSince }: Asked): boolean {
  if (ifNoneMatch !== undefined) {
    const etag = fieldOf(fields, 'etag');
    return etag !== undefined && matches(ifNoneMatch, etag.replace(/^W\//, ''));
  }
  if (ifModifiedSince === undefined) return false;
  return Date.parse(fieldOf(fields, 'last-modified') ?? '') <= Date.parse(ifModifiedSince);
}

function isSame(fields: Fields, ifRange: string | undefined): boolean {
  if (ifRange === undefined) return true;
  return !ifRange.startsWith('W/') && [fieldOf(fields, 'etag'), fieldOf(fields, 'last-modified')].includes(ifRange);
}
