/**
 * The instructions behind md5-lanes.ts, as WebAssembly. MD5 is one chain of steps of which each waits for the one
 * before, so a core idles most of the time. Several values that take their steps in turns fill it: up to four as plain
 * numbers, or up to twelve in three vectors of four lanes each. (More would no longer fit in the registers.) Written
 * out for 64 steps by loops from the tables of RFC 1321, as no package has it and nothing here is built ahead.
 */
import {
  AGAIN_IF_NOT_ZERO,
  type Bytes,
  compiled,
  END,
  get,
  type Instructions,
  LOOP,
  NUMBERS,
  number,
  type SharedMemory,
  set,
  tee,
  VECTORS,
  type WasmFunction,
} from './wasm-code.ts';

/** Takes where each lane's next block begins, then how many blocks of 64 bytes each lane goes on, at least one. */
export type LanesFunction = (...pointersAndBlocks: number[]) => void;

/** `groups` of so many lanes. */
export interface Shape {
  lanes: 1 | 4;
  groups: number;
}

/**
 * What there are functions for, by the number of lanes. Against one value alone, 2 at once take 1.0 times as long, 3
 * take 1.2, 4 take 1.7, 8 take 2.6 and 12 take 2.7 times as long (AMD Zen 5).
 */
const SHAPES: readonly Shape[] = [
  { lanes: 1, groups: 1 },
  { lanes: 1, groups: 2 },
  { lanes: 1, groups: 3 },
  { lanes: 1, groups: 4 },
  { lanes: 4, groups: 2 },
  { lanes: 4, groups: 3 },
];
export const MOST_LANES = Math.max(...SHAPES.map(({ lanes, groups }) => lanes * groups));
/** Bytes at the start of the memory that the module's functions have for themselves. */
export const RESERVED_BYTES = 4096;

/** Where the lanes' states are: A to D of a group, each for all of its lanes, then those of the next group. */
const STATES = 0;
/** Where the 64 constants are, a word each. */
const CONSTANTS = 1024;

/** Index of a word (0 for A … 3 for D) of a lane's state among the memory's words of 32 bits. */
export function stateIndex({ lanes }: Shape, lane: number, word: number): number {
  return STATES / 4 + (Math.floor(lane / lanes) * 4 + word) * lanes + (lane % lanes);
}

/** In the order of how many lanes they have. */
export function lanesFunctions(memory: SharedMemory): { shape: Shape; go: LanesFunction }[] {
  const constants = Buffer.from(new Uint32Array(CONSTANT_WORDS).buffer);
  const functions = compiled(SHAPES.map(lanesFunction), { offset: CONSTANTS, bytes: constants }, memory);
  return SHAPES.map((shape, index) => ({ shape, go: at(functions, index) }));
}

/** RFC 1321, 3.4: the functions' order of words, and how far each step rotates, by round. */
const ROUNDS = [
  { word: (step: number) => step, rotations: [7, 12, 17, 22] },
  { word: (step: number) => 5 * step + 1, rotations: [5, 9, 14, 20] },
  { word: (step: number) => 3 * step + 5, rotations: [4, 11, 16, 23] },
  { word: (step: number) => 7 * step, rotations: [6, 10, 15, 21] },
];

/** RFC 1321, 3.4: table T. */
const CONSTANT_WORDS = Array.from({ length: 64 }, (_, step) => Math.floor(2 ** 32 * Math.abs(Math.sin(step + 1))));

/** A group's locals. */
interface Group {
  pointers: number[];
  state: number[];
  /** Of vectors only: the block's words. */
  words: number[];
  spare: number;
}

function lanesFunction({ lanes, groups: groupCount }: Shape): WasmFunction {
  const kind = lanes === 1 ? NUMBERS : VECTORS;
  const blocks = groupCount * lanes;
  let locals = blocks + 1;
  const more = (length: number) => Array.from({ length }, () => locals++);
  const groups = Array.from(
    { length: groupCount },
    (_, group): Group => ({
      pointers: Array.from({ length: lanes }, (_, lane) => group * lanes + lane),
      state: more(4),
      words: more(lanes === 1 ? 0 : 16),
      spare: locals++,
    }),
  );
  const states = groups
    .flatMap(({ state }) => state)
    .map((local, index) => ({ local, offset: STATES + kind.bytes * index }));
  const body = [
    states.flatMap(({ local, offset }) => [...number(0), ...kind.load(offset), ...set(local)]),
    LOOP,
    groups.flatMap(gatherWords),
    ...CONSTANT_WORDS.map((_, step) => groups.flatMap((group) => stepOf(kind, group, step))),
    // What the block made of the state is added to what it was, which is still in memory.
    states.flatMap(({ local, offset }) => [
      ...[...number(0), ...get(local), ...number(0), ...kind.load(offset), ...kind.add, ...tee(local)],
      ...kind.store(offset),
    ]),
    groups.flatMap(({ pointers }) =>
      pointers.flatMap((pointer) => [...get(pointer), ...number(64), ...NUMBERS.add, ...set(pointer)]),
    ),
    [...get(blocks), ...number(-1), ...NUMBERS.add, ...tee(blocks), ...AGAIN_IF_NOT_ZERO, ...END],
  ].flat();
  return { parameters: blocks + 1, locals: { count: locals - blocks - 1, type: kind.type }, body };
}

/** The next block's words, each from all four lanes. Little endian, as RFC 1321 has them. */
function gatherWords({ pointers: [first = 0, ...others], words }: Group): Bytes {
  return words.flatMap((local, index) => [
    ...[...get(first), ...VECTORS.loadFirst(4 * index), ...set(local)],
    ...others.flatMap((pointer, i) => [
      ...[...get(pointer), ...get(local), ...VECTORS.loadLane(4 * index, i + 1), ...set(local)],
    ]),
  ]);
}

/** RFC 1321, 3.4: a = b + ((a + f(b, c, d) + word + constant) <<< rotation). */
function stepOf(kind: Instructions, { pointers, state, words, spare }: Group, step: number): Bytes {
  const round = Math.floor(step / 16);
  const { word, rotations } = at(ROUNDS, round);
  const index = word(step) % 16;
  const alone = kind === NUMBERS;
  const wordNow = alone ? [...get(at(pointers, 0)), ...kind.load(4 * index)] : get(at(words, index));
  // A constant vector in the code would be put together from two numbers each time, which takes longer than to load it.
  const constant = alone ? number(at(CONSTANT_WORDS, step)) : [...number(0), ...VECTORS.loadAll(CONSTANTS + 4 * step)];
  const [a, b, c, d] = [0, 1, 2, 3].map((role) => at(state, role - step + 64)) as [number, number, number, number];
  return [
    // What does not wait for `b`, the step before, comes first.
    ...[...get(a), ...wordNow, ...constant, ...kind.add, ...kind.add],
    ...mixed(kind, round, get(b), get(c), get(d)),
    ...[...kind.rotate(at(rotations, step), spare), ...get(b), ...kind.add, ...set(a)],
  ];
}

/** RFC 1321, 3.4: adds the round's function F, G, H or I to what lies on the stack. */
function mixed({ not, and, or, xor, add }: Instructions, round: number, b: Bytes, c: Bytes, d: Bytes): Bytes {
  // (b and c) or (not b and d)
  if (round === 0) return [...c, ...d, ...xor, ...b, ...and, ...d, ...xor, ...add];
  // (b and d) or (c and not d): no bit is in both, so they can be added one by one.
  if (round === 1) return [...d, ...not, ...c, ...and, ...add, ...b, ...d, ...and, ...add];
  if (round === 2) return [...c, ...d, ...xor, ...b, ...xor, ...add];
  // c xor (b or not d)
  return [...d, ...not, ...b, ...or, ...c, ...xor, ...add];
}

/** Lists go round: steps count on. */
function at<T>(items: readonly T[], index: number): T {
  return items[index % items.length] as T;
}
