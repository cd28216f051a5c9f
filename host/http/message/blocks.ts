/**
 * Memory that large bodies are read into. A block goes round: read into, written from where it is, and read into
 * again once nobody holds it; nothing is copied, and nothing is left to the garbage collector.
 */

const BLOCK_BYTES = 131_072;
/** Blocks are cut from slabs: one object for the garbage collector instead of many that come and go. */
const SLAB_BLOCKS = 32;
/** Beyond 64 MiB bodies are read into the common buffer and copied: slow callers must not pile up blocks. */
const MAX_SLABS = 16;
/** How long slabs that nobody uses are kept, ms. */
const KEPT_MS = 5_000;
/** Reads of this size and more go on to the other side in a block, so that no memory is made for them. */
const WORTH_A_BLOCK = 16_384;

/** Room for one read: less would make more reads of a large body than there need be. */
const ROOM_BYTES = 65_536;

/** Memory of a piece: while it is held, it stays as it is. */
export interface Block {
  hold(): void;
  release(): void;
  /** Where the same bytes are in an open file. */
  inFile?(piece: Buffer): FileBytes | undefined;
}

export interface FileBytes {
  descriptor: number;
  /** Offset of the first byte. */
  at: number;
}

/** For memory that nobody reads into again. */
export const OWNED: Block = { hold: () => {}, release: () => {} };

interface Slab {
  readonly free: Buffer[];
}

export class ReadBlock implements Block {
  readonly bytes: Buffer;
  readonly #blocks: Blocks;
  readonly #slab: Slab;
  #holders = 1;

  constructor(blocks: Blocks, slab: Slab, bytes: Buffer) {
    this.#blocks = blocks;
    this.#slab = slab;
    this.bytes = bytes;
  }

  /** Somebody holds it beside the taker. */
  get kept(): boolean {
    return this.#holders > 1;
  }

  hold(): void {
    this.#holders += 1;
  }

  release(): void {
    this.#holders -= 1;
    if (this.#holders === 0) this.#blocks.giveBack(this.#slab, this.bytes);
  }
}

export class Blocks {
  /** The first ones are used first, so that the last ones become free. */
  #slabs: Slab[] = [];
  #trim: NodeJS.Timeout | undefined;

  /** @returns undefined when too many are in use; held once by the taker */
  take(): ReadBlock | undefined {
    const slab = this.#slabs.find(({ free }) => free.length > 0) ?? this.#newSlab();
    const bytes = slab?.free.pop();
    return slab && bytes && new ReadBlock(this, slab, bytes);
  }

  /** @internal */
  giveBack(slab: Slab, bytes: Buffer): void {
    slab.free.push(bytes);
    if (slab.free.length < SLAB_BLOCKS || slab === this.#slabs[0]) return;
    this.#trim ??= setTimeout(() => {
      this.#trim = undefined;
      this.#slabs = this.#slabs.filter(({ free }, index) => index === 0 || free.length < SLAB_BLOCKS);
    }, KEPT_MS).unref();
  }

  #newSlab(): Slab | undefined {
    if (this.#slabs.length === MAX_SLABS) return undefined;
    const memory = Buffer.allocUnsafeSlow(SLAB_BLOCKS * BLOCK_BYTES);
    const free = Array.from({ length: SLAB_BLOCKS }, (_, index) =>
      memory.subarray(index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES),
    );
    const slab = { free };
    this.#slabs.push(slab);
    return slab;
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

/** Whether another read is worth while in what is left of a block. @param filled bytes that hold pieces already */
export function hasRoom(block: ReadBlock, filled: number): boolean {
  return block.bytes.length - filled >= ROOM_BYTES;
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

/**
 * Whether the other side keeps up. `writableNeedDrain` alone is set by every write above the high-water mark, also where
 * the kernel took all of it at once: reading would stop and start with each large piece.
 */
export function takesMore(socket: { writableNeedDrain: boolean; writableLength: number }): boolean {
  return !socket.writableNeedDrain || socket.writableLength === 0;
}
