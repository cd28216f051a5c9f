/**
 * A socket to a server of our own that may answer before it has all of a request, and then close: workerd does where a
 * handler leaves 64 KiB of a body unread (kj `canceledUploadGraceBytes`). Its answer is read nonetheless.
 */
import { Socket } from 'node:net';

type Done = (error?: Error | null) => void;

/** Nobody reads any more what is written. */
const HUNG_UP = new Set(['EPIPE', 'ECONNRESET']);

export class UpstreamSocket extends Socket {
  override _write(chunk: unknown, encoding: BufferEncoding, done: Done): void {
    super._write(chunk, encoding, unlessHungUp(done));
  }

  override _writev(chunks: { chunk: unknown; encoding: BufferEncoding }[], done: Done): void {
    super._writev?.(chunks, unlessHungUp(done));
  }
}

/** A stream whose writing fails is destroyed, with all that is still to be read. What there is to tell, reading tells. */
function unlessHungUp(done: Done): Done {
  return (error) => done(error && HUNG_UP.has((error as NodeJS.ErrnoException).code ?? '') ? undefined : error);
}
