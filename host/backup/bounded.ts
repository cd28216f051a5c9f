/** Reads what a backup should hold, from a place that may give more, or nothing any more. */
import type { Readable } from 'node:stream';

/** A place that gives nothing for so long gives nothing any more, ms. */
const IDLE_MS = 60_000;

/**
 * @param bytes that there are to be; a read ends with an error as soon as there are more
 * @param seen is told each part
 */
export async function* bounded(source: Readable, bytes: number, seen?: (part: Buffer) => void, idleMs = IDLE_MS) {
  let size = 0;
  const late = () => source.destroy(new Error(`no data arrived for ${idleMs / 1000} s`));
  let timer = setTimeout(late, idleMs);
  try {
    for await (const part of source as AsyncIterable<Buffer>) {
      clearTimeout(timer);
      size += part.length;
      if (size > bytes) throw new Error(`it is longer than ${bytes} bytes`);
      seen?.(part);
      yield part;
      timer = setTimeout(late, idleMs);
    }
  } finally {
    clearTimeout(timer);
    source.destroy();
  }
}

/** The text of a small file. @throws Error when it is longer */
export async function readBounded(source: Readable, bytes: number): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of bounded(source, bytes)) parts.push(part);
  return Buffer.concat(parts).toString('utf8');
}

/** @throws Error when it is not there in time */
export async function within<T>(work: Promise<T>, idleMs = IDLE_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer for ${idleMs / 1000} s`)), idleMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
