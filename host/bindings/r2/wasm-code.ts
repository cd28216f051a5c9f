/**
 * Just enough of an assembler for md5-lanes-module.ts: the few instructions it needs and the module around its functions.
 * https://webassembly.github.io/spec/core/binary/index.html
 */

/** What the types of Node lack. */
declare const WebAssembly: {
  Memory: new (limits: { shared: true; initial: number; maximum: number }) => SharedMemory;
  Module: new (bytes: Uint8Array) => object;
  Instance: new (module: object, imports: { host: { memory: SharedMemory } }) => { exports: Record<string, Callable> };
};

export interface SharedMemory {
  readonly buffer: SharedArrayBuffer;
}

type Callable = (...parameters: number[]) => void;

/** Memory that several threads see. Pages that were never used take none of the machine's. */
export function sharedMemory(bytes: number): SharedMemory {
  const pages = Math.ceil(bytes / 65_536);
  return new WebAssembly.Memory({ shared: true, initial: pages, maximum: pages });
}

/** An instruction or several. Operands stand before their instruction, as on a stack. */
export type Bytes = number[];

export const get = (local: number): Bytes => [0x20, ...unsigned(local)];
export const set = (local: number): Bytes => [0x21, ...unsigned(local)];
/** Sets it and leaves the value on the stack. */
export const tee = (local: number): Bytes => [0x22, ...unsigned(local)];
export const number = (value: number): Bytes => [0x41, ...signed(value)];
export const LOOP: Bytes = [0x03, 0x40];
export const AGAIN_IF_NOT_ZERO: Bytes = [0x0d, 0];
export const END: Bytes = [0x0b];

const vector = (code: number, ...rest: Bytes): Bytes => [0xfd, ...unsigned(code), ...rest];
/** An operand in memory: the alignment as a power of two, then the offset. */
const aligned = (power: number, offset: number): Bytes => [power, ...unsigned(offset)];

const I32 = 0x7f;
const V128 = 0x7b;

export interface Instructions {
  type: number;
  bytes: number;
  add: Bytes;
  not: Bytes;
  and: Bytes;
  or: Bytes;
  xor: Bytes;
  load(offset: number): Bytes;
  store(offset: number): Bytes;
  /** To the left. May use the local `spare`. */
  rotate(by: number, spare: number): Bytes;
}

export interface VectorInstructions extends Instructions {
  /** One number of the memory: into all lanes, into the first or into a given one. */
  loadAll(offset: number): Bytes;
  loadFirst(offset: number): Bytes;
  loadLane(offset: number, lane: number): Bytes;
}

/** For a number of 32 bits. */
export const NUMBERS: Instructions = {
  type: I32,
  bytes: 4,
  add: [0x6a],
  not: [...number(-1), 0x73],
  and: [0x71],
  or: [0x72],
  xor: [0x73],
  load: (offset) => [0x28, ...aligned(2, offset)],
  store: (offset) => [0x36, ...aligned(2, offset)],
  rotate: (by) => [...number(by), 0x77],
};

/** For four of them at once. */
export const VECTORS: VectorInstructions = {
  type: V128,
  bytes: 16,
  add: vector(0xae),
  not: vector(0x4d),
  and: vector(0x4e),
  or: vector(0x50),
  xor: vector(0x51),
  load: (offset) => vector(0x00, ...aligned(4, offset)),
  store: (offset) => vector(0x0b, ...aligned(4, offset)),
  loadAll: (offset) => vector(0x09, ...aligned(2, offset)),
  loadFirst: (offset) => vector(0x5c, ...aligned(2, offset)),
  loadLane: (offset, lane) => vector(0x56, ...aligned(2, offset), lane),
  rotate: (by, spare) => [
    ...[...tee(spare), ...number(by), ...vector(0xab)],
    ...[...get(spare), ...number(32 - by), ...vector(0xad), ...vector(0x50)],
  ],
};

/** It takes numbers and answers nothing. Its locals are numbered on from the parameters. */
export interface WasmFunction {
  parameters: number;
  locals: { count: number; type: number };
  body: Bytes;
}

/** Functions that work on the memory, at whose `data.offset` `data.bytes` are put. */
export function compiled(
  functions: WasmFunction[],
  data: { offset: number; bytes: Buffer },
  memory: SharedMemory,
): Callable[] {
  const types = functions.map(({ parameters }) => [0x60, ...list(Array(parameters).fill([I32])), ...list([])]);
  const code = functions.map(({ locals, body }) =>
    sized([...list([[...unsigned(locals.count), locals.type]]), ...body, ...END]),
  );
  const bytes = [
    ...[0, ...Buffer.from('asm'), 1, 0, 0, 0],
    ...section(1, list(types)),
    // A shared memory of 1 to 65,536 pages, as large as it may be.
    ...section(2, list([[...name('host'), ...name('memory'), 0x02, 0x03, ...unsigned(1), ...unsigned(65_536)]])),
    ...section(3, list(functions.map((_, index) => [index]))),
    ...section(7, list(functions.map((_, index) => [...name(String(index)), 0x00, index]))),
    ...section(10, list(code)),
    ...section(11, list([[0x00, ...number(data.offset), ...END, ...sized([...data.bytes])]])),
  ];
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes)), { host: { memory } });
  return functions.map((_, index) => exports[index] as Callable);
}

const section = (id: number, content: Bytes): Bytes => [id, ...sized(content)];
const sized = (content: Bytes): Bytes => [...unsigned(content.length), ...content];
const list = (items: Bytes[]): Bytes => [...unsigned(items.length), ...items.flat()];
const name = (text: string): Bytes => sized([...Buffer.from(text)]);

/** LEB128. */
function unsigned(value: number): Bytes {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...unsigned(value >>> 7)];
}

/** LEB128 of 32 bits, whether they are meant with a sign or without. */
function signed(value: number): Bytes {
  return value >= -0x40 && value < 0x40 ? [value & 0x7f] : [(value & 0x7f) | 0x80, ...signed(value >> 7)];
}
