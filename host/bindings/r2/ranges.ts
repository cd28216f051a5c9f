/** Which bytes of an object a get asks for. */
import { r2Errors } from './errors.ts';
import type { GetRequest } from './requests.ts';

export interface Range {
  offset: number;
  length: number;
}

/** The bytes to answer with; the whole object where no range was given. Throws 10039 for what is not in the object. */
export function resolveRange(request: Pick<GetRequest, 'range' | 'rangeHeader'>, size: number): Range {
  if (request.rangeHeader !== undefined) return headerRange(request.rangeHeader, size) ?? { offset: 0, length: size };
  if (request.range === undefined) return { offset: 0, length: size };
  const { suffix } = request.range;
  if (suffix !== undefined) {
    if (suffix <= 0) throw r2Errors.badRange();
    const length = Math.min(suffix, size);
    if (length === 0) throw r2Errors.badRange();
    return { offset: size - length, length };
  }
  const offset = request.range.offset ?? 0;
  if (offset > size) throw r2Errors.badRange();
  const length = Math.min(request.range.length ?? size - offset, size - offset);
  if (length <= 0) throw r2Errors.badRange();
  return { offset, length };
}

/**
 * A Range header's one range, or undefined for the whole object: R2 ignores headers with several ranges, with faults,
 * or with nothing of the object in them.
 */
function headerRange(header: string, size: number): Range | undefined {
  const match = /^ *bytes *= *(\d*) *- *(\d*) *$/i.exec(header);
  if (!match) return undefined;
  const [, first = '', last = ''] = match;
  if (first === '') {
    const suffix = Number(last);
    if (last === '' || suffix === 0 || suffix >= size) return undefined;
    return { offset: size - suffix, length: suffix };
  }
  const offset = Number(first);
  if (offset >= size || (last !== '' && Number(last) < offset)) return undefined;
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1);
  return { offset, length: end - offset + 1 };
}
