/** Ranges of keys in byte order, which is the order in which both bindings list. */

/** No UTF-8 text holds this byte, so it is behind every key. */
const END = Buffer.from([0xff]);

/** First key (inclusive) and end (exclusive) of all keys that begin with `prefix`. */
export function prefixRange(prefix: Buffer): { from: Buffer; to: Buffer } {
  return { from: prefix, to: prefix.length === 0 ? END : behindPrefix(prefix) };
}

/** The first key that is behind all keys beginning with `prefix`. */
export function behindPrefix(prefix: Buffer): Buffer {
  const end = Buffer.from(prefix);
  // UTF-8 has no 0xff, so the last byte can always be raised.
  end[end.length - 1] = (end[end.length - 1] ?? 0) + 1;
  return end;
}

/** The first key behind `key` itself. */
export function behindKey(key: Buffer): Buffer {
  return Buffer.concat([key, Buffer.from([0])]);
}

export function later(a: Buffer, b: Buffer): Buffer {
  return Buffer.compare(a, b) >= 0 ? a : b;
}
