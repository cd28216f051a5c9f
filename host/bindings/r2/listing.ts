/**
 * Lists of a bucket. A page ends at its limit or before it is too large for workerd, and its cursor is the first key
 * that the next page may begin with. With a delimiter whole groups of keys are skipped, not read.
 */
import { behindKey, behindPrefix, later, prefixRange } from '../store-process/key-range.ts';
import type { Work } from '../store-process/work.ts';
import { r2Errors } from './errors.ts';
import { MAX_KEY_BYTES, MAX_LIST_KEYS, MAX_LIST_REPLY_BYTES } from './limits.ts';
import { type ObjectRow, objectJson } from './objects.ts';
import type { ListRequest } from './requests.ts';

/** Rows read at once where a delimiter may make most of them void. */
const FIRST_READ = 8;

/** What a listing reads: objects in key order between two keys. */
export interface Pages {
  page(from: Buffer, to: Buffer, limit: number): Work<ObjectRow[]>;
}

/** The reply's JSON (R2ListResponse). */
export function* list(pages: Pages, request: ListRequest): Work<string> {
  const limit = request.limit ?? MAX_LIST_KEYS;
  if (limit < 1 || limit > MAX_LIST_KEYS) throw r2Errors.badLimit();
  const prefix = Buffer.from(request.prefix ?? '');
  const delimiter = request.delimiter ? Buffer.from(request.delimiter) : undefined;
  const include = request.include ?? [];
  const shown = { http: include.includes(0), custom: include.includes(1) };
  const range = prefixRange(prefix);
  let from = range.from;
  if (request.startAfter !== undefined) from = later(from, behindKey(Buffer.from(request.startAfter)));
  if (request.cursor) from = later(from, decodeCursor(request.cursor));

  const objects: string[] = [];
  const groups: string[] = [];
  let bytes = 0;
  let truncated = false;
  let reading = delimiter ? FIRST_READ : limit + 1;
  scan: for (;;) {
    const rows = yield* pages.page(from, range.to, reading);
    for (const row of rows) {
      if (objects.length + groups.length >= limit) {
        truncated = true;
        break scan;
      }
      const group = delimiter && groupOf(row.key, prefix.length, delimiter);
      const json = group ? JSON.stringify(group.toString()) : objectJson(row, shown);
      bytes += Buffer.byteLength(json) + 1;
      if (bytes > MAX_LIST_REPLY_BYTES) {
        truncated = true;
        break scan;
      }
      if (group) {
        groups.push(json);
        from = behindPrefix(group);
        reading = FIRST_READ;
        continue scan;
      }
      objects.push(json);
      from = behindKey(row.key);
    }
    if (rows.length < reading) break;
    reading = Math.min(reading * 2, limit + 1);
  }
  const cursor = truncated ? `,"cursor":"${from.toString('base64url')}"` : '';
  return `{"objects":[${objects.join(',')}],"truncated":${truncated}${cursor},"delimitedPrefixes":[${groups.join(',')}]}`;
}

/** The key up to and including the first delimiter behind the prefix. */
function groupOf(key: Buffer, prefixBytes: number, delimiter: Buffer): Buffer | undefined {
  const at = key.indexOf(delimiter, prefixBytes);
  return at < 0 ? undefined : key.subarray(0, at + delimiter.length);
}

function decodeCursor(cursor: string): Buffer {
  const key = Buffer.from(cursor, 'base64url');
  if (key.length === 0 || key.length > MAX_KEY_BYTES + 1 || key.toString('base64url') !== cursor)
    throw r2Errors.badCursor();
  return key;
}
