/**
 * Values that a tenant binds, checked before libSQL sees them: it aborts the whole process on a boolean
 * and on named arguments (seen in libsql 0.5.29).
 */
import { MESSAGES, SqlFailure } from './failure.ts';
import { MAX_PARAMETERS, MAX_VALUE_BYTES } from './limits.ts';

export type Parameter = null | number | string | Uint8Array;

/**
 * @param params the `params` member of a query: absent, null or an array of JSON values; bytes are arrays of numbers
 * @throws SqlFailure
 */
export function checkParameters(params: unknown): Parameter[] {
  if (params === undefined || params === null) return [];
  if (!Array.isArray(params)) throw new SqlFailure('params must be an array');
  if (params.length > MAX_PARAMETERS) throw new SqlFailure(MESSAGES.tooManyVariables);
  return params.map(checkParameter);
}

function checkParameter(value: unknown): Parameter {
  switch (typeof value) {
    case 'number':
      return value;
    case 'boolean':
      return value ? 1 : 0;
    case 'string':
      // A character is one to three bytes in UTF-8; count only where it can matter.
      if (value.length > MAX_VALUE_BYTES / 3 && Buffer.byteLength(value) > MAX_VALUE_BYTES) {
        throw new SqlFailure(MESSAGES.tooBig);
      }
      return value;
    default:
      if (value === null) return null;
      if (Array.isArray(value)) return toBytes(value);
      throw new SqlFailure(`Type '${typeof value}' not supported for value '${value}'`);
  }
}

function toBytes(value: unknown[]): Uint8Array {
  if (value.length > MAX_VALUE_BYTES) throw new SqlFailure(MESSAGES.tooBig);
  const bytes = Buffer.allocUnsafe(value.length);
  for (const [index, item] of value.entries()) {
    if (typeof item !== 'number') {
      throw new SqlFailure('a parameter that is an array must hold bytes');
    }
    // Elements of a view come as numbers, such as -1 of an Int8Array: each becomes one byte, as in D1.
    bytes[index] = item;
  }
  return bytes;
}
