/** Which answer, and which part of it, a request wants (RFC 9110, 13 and 14). */

const RANGE = /^bytes=[\t ]*(\d{0,15})-(\d{0,15})[\t ]*$/i;

/** @param etag without `W/` */
export function matches(ifNoneMatch: string, etag: string): boolean {
  if (ifNoneMatch === '') return false;
  if (ifNoneMatch.trim() === '*') return true;
  return ifNoneMatch.split(',').some((each) => each.trim().replace(/^W\//, '') === etag);
}

/**
 * What a Range field asks for.
 * @returns first byte and the one after the last; `none` where there is no such part (416); undefined: all of it, as for
 * several ranges and what is not understood
 */
export function rangeOf(range: string | undefined, size: number): [from: number, to: number] | 'none' | undefined {
  const [whole, first = '', last = ''] = (range && RANGE.exec(range)) || [];
  if (whole === undefined || (first === '' && last === '')) return undefined;
  if (first === '') {
    const length = Math.min(Number(last), size);
    return length === 0 ? 'none' : [size - length, size];
  }
  const from = Number(first);
  if (last !== '' && Number(last) < from) return undefined;
  if (from >= size) return 'none';
  return [from, last === '' ? size : Math.min(Number(last) + 1, size)];
}
