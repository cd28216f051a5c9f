/** The answer that is a static file, as a request's upstream: piece by piece, as quickly as the caller takes it. */
import type { BulkReader, BulkTurns } from '../../http/client/connection.ts';
import { UpstreamError, type UpstreamHandler } from '../../http/client/pool.ts';
import { type Block, LARGE_BYTES, OWNED, type ReadMemory } from '../../http/message/blocks.ts';
import type { ResponseHead } from '../../http/message/head.ts';
import type { OpenFile } from './kept-files.ts';

/** Of a file in memory. */
const PIECE_BYTES = 262_144;
/** Read at once where no block is free. */
const SMALL_READ = 16_384;

export class FileAnswer implements BulkReader {
  readonly #head: ResponseHead;
  readonly #file: OpenFile;
  readonly #memory: ReadMemory;
  readonly #bulk: BulkTurns | undefined;
  #handler: UpstreamHandler | undefined;
  #at: number;
  readonly #end: number;
  #paused = false;
  #held = false;
  #reading = false;
  #pumping = false;

  /** @param file held for this answer, which releases it @param to where its body ends; `from` where it has none */
  constructor(
    head: ResponseHead,
    file: OpenFile,
    [from, to]: readonly [from: number, to: number],
    memory: ReadMemory,
    bulk: BulkTurns,
  ) {
    this.#head = head;
    this.#file = file;
    this.#at = from;
    this.#end = to;
    this.#memory = memory;
    this.#bulk = to - from > LARGE_BYTES ? bulk : undefined;
  }

  begin(handler: UpstreamHandler): void {
    this.#handler = handler;
    handler.head(this.#head);
    this.#bulk?.enter(this);
    this.#pump();
  }

  /** Nothing of it is wanted. */
  destroy(): void {
    this.#handler = undefined;
    this.#leave();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#pump();
  }

  hold(): void {
    this.#held = true;
  }

  proceed(): void {
    this.#held = false;
    this.#pump();
  }

  /** Requests for files have no body. */
  write(): boolean {
    return true;
  }

  end(): void {}

  flush(): void {}

  #left = false;

  #leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.#bulk?.leave(this);
    // What reads from it releases it.
    if (!this.#reading) this.#file.release();
  }

  #pump(): void {
    // A caller that takes all at once drains within the call that writes.
    if (this.#pumping) return;
    this.#pumping = true;
    while (this.#handler && !this.#paused && !this.#held && !this.#reading) {
      if (this.#at >= this.#end) {
        const handler = this.#handler;
        this.#handler = undefined;
        this.#leave();
        handler.end('');
        break;
      }
      const { bytes } = this.#file;
      if (bytes === undefined) this.#read();
      else this.#give(bytes.subarray(this.#at, Math.min(this.#at + PIECE_BYTES, this.#end)), this.#file);
    }
    this.#pumping = false;
  }

  #give(piece: Buffer, block: Block): void {
    this.#at += piece.length;
    this.#bulk?.spend(piece.length);
    this.#handler?.data(piece, block);
  }

  #read(): void {
    this.#reading = true;
    const block = this.#memory.blocks.take();
    const room = block?.bytes ?? Buffer.allocUnsafeSlow(SMALL_READ);
    const done = (read: number) => {
      this.#reading = false;
      if (this.#left) this.#file.release();
      else if (read > 0) this.#give(room.subarray(0, read), block ?? OWNED);
      else this.#broken();
      block?.release();
      if (this.#handler && !this.#paused) this.#handler.flush();
      this.#pump();
    };
    const length = Math.min(room.length, this.#end - this.#at);
    this.#file.handle?.read(room, 0, length, this.#at).then(
      ({ bytesRead }) => done(bytesRead),
      () => done(0),
    );
  }

  #broken(): void {
    const handler = this.#handler;
    this.#handler = undefined;
    this.#leave();
    handler?.failed(new UpstreamError('broken', 'The file could not be read.'));
  }
}
