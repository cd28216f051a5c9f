/** What both protocols of databases need: exact reads while a connection is made, and failures in the server's own words. */
import type { Duplex, Readable } from 'node:stream';
import { Problem } from '../../shared/problem.ts';
import type { Target } from '../target.ts';

class Ended extends Error {}

/** A refusal of the database itself, as it came: the client is shown it unchanged. */
export class ServerRefusal extends Error {
  /** The message of the protocol, without what frames it. */
  readonly payload: Buffer;

  constructor(payload: Buffer) {
    super('The database refused the connection.');
    this.payload = payload;
  }
}

/** @param name `host:port` of the database */
export function failed(name: string, why: string): Problem {
  return new Problem('egress_failed', `${name}: ${why}.`, { extensions: { target: name } });
}

/**
 * Reads that many bytes; the rest stays in the stream.
 * @throws Error when the stream ends before
 */
export function readExactly(stream: Readable, length: number): Promise<Buffer> {
  if (length === 0) return Promise.resolve(Buffer.alloc(0));
  return new Promise((resolve, reject) => {
    const look = () => {
      const bytes: Buffer | null = stream.read(length);
      if (bytes?.length === length) return settle(() => resolve(bytes));
      if (bytes || stream.readableEnded || stream.destroyed) return over();
      return undefined;
    };
    const over = () => settle(() => reject(new Ended('The connection was closed.')));
    const settle = (done: () => void) => {
      stream.off('readable', look).off('end', over).off('close', over).off('error', over);
      done();
    };
    stream.on('readable', look).once('end', over).once('close', over).once('error', over);
    look();
  });
}

interface Bounds {
  signal: AbortSignal;
  target: Pick<Target, 'name'>;
}

/** Reads fail once the visit is over; then its reason counts. */
export async function within<T>({ signal, target }: Bounds, socket: Duplex, work: Promise<T>): Promise<T> {
  const end = () => socket.destroy();
  signal.addEventListener('abort', end, { once: true });
  if (signal.aborted) end();
  try {
    return await work;
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw error instanceof Ended ? failed(target.name, 'the database closed the connection') : error;
  } finally {
    signal.removeEventListener('abort', end);
  }
}

/** Big-endian, as PostgreSQL has all numbers. */
export function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

export function text(words: string): Buffer {
  return Buffer.from(words);
}
