/**
 * MD5 (RFC 1321) of several values at once, a lane each. Values begin and end as they come: before each stretch the
 * lanes are put together anew from those at work, and a stretch is no longer than the shortest of them.
 */
import { type LanesFunction, lanesFunctions, MOST_LANES, type Shape, stateIndex } from './md5-lanes-module.ts';
import type { SharedMemory } from './wasm-code.ts';

const BLOCK_BYTES = 64;
/** RFC 1321, 3.1 and 3.2: a byte 0x80, zeros up to a whole block and, in its last 8 bytes, the length. */
export const PADDING_BYTES = BLOCK_BYTES + 8;
/** About 100 µs: so long a new value waits for its lane. */
const STRETCH_BLOCKS = 512;
/** RFC 1321, 3.3. */
const FIRST_STATE = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];

interface Lane {
  /** Where the next block begins. */
  pointer: number;
  blocks: number;
  state: number[];
  done: (digest: Buffer) => void;
}

export class Md5Lanes {
  readonly #bytes: Buffer;
  readonly #words: Uint32Array;
  readonly #functions: { shape: Shape; go: LanesFunction }[];
  #lanes: Lane[] = [];

  constructor(memory: SharedMemory) {
    this.#bytes = Buffer.from(memory.buffer);
    this.#words = new Uint32Array(memory.buffer);
    this.#functions = lanesFunctions(memory);
  }

  get busy(): number {
    return this.#lanes.length;
  }

  get room(): number {
    return MOST_LANES - this.#lanes.length;
  }

  /**
   * Only where there is room. The value is less than 512 MiB and lies in the memory; the `PADDING_BYTES` after it are
   * written to. `done` is called by the `run` that ends it.
   */
  add(offset: number, length: number, done: (digest: Buffer) => void): void {
    const blocks = Math.floor((length + 8) / BLOCK_BYTES) + 1;
    const end = offset + blocks * BLOCK_BYTES;
    this.#bytes.fill(0, offset + length, end);
    this.#bytes[offset + length] = 0x80;
    this.#bytes.writeUInt32LE(length * 8, end - 8);
    this.#lanes.push({ pointer: offset, blocks, state: FIRST_STATE, done });
  }

  /** A stretch of all values at work. */
  run(): void {
    const lanes = this.#lanes;
    const [first] = lanes;
    const chosen = this.#functions.find(({ shape }) => shape.groups * shape.lanes >= lanes.length);
    if (!first || !chosen) return;
    const { shape, go } = chosen;
    const blocks = lanes.reduce((least, lane) => Math.min(least, lane.blocks), STRETCH_BLOCKS);
    for (const [index, lane] of lanes.entries())
      for (const [word, value] of lane.state.entries()) this.#words[stateIndex(shape, index, word)] = value;
    // Lanes left over go where the first one goes; nobody reads what comes of it.
    const pointers = Array.from({ length: shape.groups * shape.lanes }, (_, index) => (lanes[index] ?? first).pointer);
    go(...pointers, blocks);
    for (const [index, lane] of lanes.entries()) {
      lane.state = lane.state.map((_, word) => this.#words[stateIndex(shape, index, word)] as number);
      lane.pointer += blocks * BLOCK_BYTES;
      lane.blocks -= blocks;
    }
    this.#lanes = lanes.filter((lane) => lane.blocks > 0);
    for (const lane of lanes) if (lane.blocks === 0) lane.done(digestOf(lane.state));
  }
}

/** RFC 1321, 3.5: the low-order byte of each word first. */
function digestOf(state: number[]): Buffer {
  const digest = Buffer.alloc(16);
  for (const [word, value] of state.entries()) digest.writeUInt32LE(value, 4 * word);
  return digest;
}
