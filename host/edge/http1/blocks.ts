/**
 * Memory that large bodies are read into. A block goes round: read into, written from where it is, and read into
 * again once nobody holds it; nothing is copied, and nothing is left to the garbage collector.
 */

const BLOCK_BYTES = 131_072;
/** Beyond it bodies are read into the common buffer and copied: slow callers must not pile up blocks. */
const MAX_OUTSTANDING = 256;
const MAX_FREE = 32;
/** Reads of this size and more go on to the other side in a block, so that no memory is made for them. */
const WORTH_A_BLOCK = 16_384;

/** Memory of a piece: while it is held, it stays as it is. */
export interface Block {
  hold(): void;
  release(): void;
}

/** For memory that nobody reads into again. */
export const OWNED: Block = { hold: () => {}, release: () => {} };

export class ReadBlock implements Block {
  readonly bytes: Buffer;
  readonly #blocks: Blocks;
  #holders = 1;

  constructor(blocks: Blocks, bytes: Buffer) {
    this.#blocks = blocks;
    this.bytes = bytes;
  }

  hold(): void {
    this.#holders += 1;
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders === 0) this.#blocks.giveBack(this.bytes);
  }
}

export class Blocks {
  readonly #free: Buffer[] = [];
  #outstanding = 0;

  /** @returns undefined when too many are in use; held once by the taker */
  take(): ReadBlock | undefined {
    if (this.#outstanding >= MAX_OUTSTANDING) return undefined;
    this.#outstanding += 1;
    return new ReadBlock(this, this.#free.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES));
  }

  /** @internal */
  giveBack(bytes: Buffer): void {
    this.#outstanding -= 1;
    if (this.#free.length < MAX_FREE) this.#free.push(bytes);
  }
}

/** What sockets of a process read into. */
export interface ReadMemory {
  /** For everything that is dealt with before the next socket is read. */
  common: Buffer;
  blocks: Blocks;
}

export function readMemory(): ReadMemory {
  return { common: Buffer.allocUnsafeSlow(65_536), blocks: new Blocks() };
}

/**
 * What a socket read into the common buffer, in memory that may be kept where it is much.
 * @returns a block that the caller releases; undefined: the bytes are still in the common buffer
 */
export function keepable(memory: ReadMemory, length: number): ReadBlock | undefined {
  if (length < WORTH_A_BLOCK) return undefined;
  const block = memory.blocks.take();
  if (block) memory.common.copy(block.bytes, 0, 0, length);
  return block;
}

/** Bytes of a body after which the socket reads into blocks. */
export const LARGE_BYTES = 65_536;

interface Writable {
  write(chunk: Buffer, done?: () => void): boolean;
}

/**
 * Writes a piece of a body.
 * @param block that the piece is in; undefined: its memory is used again after the call, and is copied
 */
export function writePiece(socket: Writable, piece: Buffer, block: Block | undefined): boolean {
  if (!block) return socket.write(Buffer.from(piece));
  block.hold();
  return socket.write(piece, () => block.release());
}
