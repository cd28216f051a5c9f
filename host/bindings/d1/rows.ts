/** Rows as the protocol has them, whichever SQLite answers them. */

/** Makes a row fit for JSON in place (blobs to arrays of numbers) and answers about how long its text will be. */
export function finishRow(row: unknown[]): number {
  let bytes = 2;
  for (let index = 0; index < row.length; index++) {
    const value = row[index];
    if (typeof value === 'string') {
      bytes += value.length + 3;
    } else if (value instanceof Uint8Array) {
      bytes += value.length * 4;
      row[index] = Array.from(value);
    } else {
      bytes += 8;
    }
  }
  return bytes;
}
