/** The text of a wrangler.jsonc, wrangler.json or wrangler.toml as a tree: bounded, and with lines for what is said of it. */
import {
  createScanner,
  findNodeAtLocation,
  getNodeValue,
  type Node,
  type ParseError,
  parseTree,
  printParseErrorCode,
} from 'jsonc-parser';
import { parse, TomlError } from 'smol-toml';

/** UTF-8 bytes. */
const LARGEST = 1024 * 1024;
/** Objects and lists within each other. */
const DEEPEST = 64;
/** Faults that are named one by one. */
export const MOST_NAMED = 20;

export type Tree = { readonly [key: string]: unknown };
/** Where a value is: names of members and indexes of elements, from the top. */
export type Place = readonly (string | number)[];

export interface Document {
  root: Tree;
  /** 1 for the first; of the nearest that is there. Nothing where the parser keeps no places (TOML). */
  line(place: Place): number | undefined;
}

/** The file cannot be taken as it is. The message names each place in it, and what is expected there; it has no values. */
export class WranglerFault extends Error {
  override name = 'WranglerFault';

  constructor(faults: readonly string[]) {
    const more = faults.length - MOST_NAMED;
    super([...faults.slice(0, MOST_NAMED), ...(more > 0 ? [`and ${more} more`] : [])].join('; '));
  }
}

export function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

/** `env.staging.kv_namespaces[0].binding` */
export function placeName(place: Place): string {
  return place
    .map((step, index) => (typeof step === 'number' ? `[${step}]` : index === 0 ? step : `.${step}`))
    .join('');
}

/** @throws WranglerFault */
export function readDocument(text: string, file: string): Document {
  if (Buffer.byteLength(text) > LARGEST) throw new WranglerFault([`${file}: it is larger than ${LARGEST} bytes`]);
  const plain = text.replace(/^\uFEFF/, '');
  const document = file.toLowerCase().endsWith('.toml') ? readToml(plain, file) : readJson(plain, file);
  const fault = findFault(document.root);
  if (fault) throw new WranglerFault([at(file, document.line(fault.place), fault.what)]);
  return document;
}

/** `wrangler.jsonc:3: …` */
export function at(file: string, line: number | undefined, what: string): string {
  return `${file}${line === undefined ? '' : `:${line}`}: ${what}`;
}

function readToml(text: string, file: string): Document {
  try {
    return { root: parse(text, { maxDepth: DEEPEST }), line: () => undefined };
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [first = ''] = error.message.split('\n', 1);
    throw new WranglerFault([`${file}:${error.line}:${error.column}: ${first}`]);
  }
}

function readJson(text: string, file: string): Document {
  checkNesting(text, file);
  const errors: ParseError[] = [];
  const tree = parseTree(text, errors, { allowTrailingComma: true });
  const [first] = errors;
  if (first) {
    const [line, column] = lineAndColumn(text, first.offset);
    throw new WranglerFault([`${file}:${line}:${column}: it is not JSON with comments: ${words(first)}`]);
  }
  const root: unknown = tree && getNodeValue(tree);
  if (!tree || !isTree(root)) throw new WranglerFault([`${file}:1: expected an object`]);
  return { root, line: (place) => lineAndColumn(text, nodeAt(tree, place).offset)[0] };
}

/** `CloseBraceExpected` -> `close brace expected` */
function words({ error }: ParseError): string {
  return printParseErrorCode(error)
    .replace(/\B[A-Z]/g, (letter) => ` ${letter}`)
    .toLowerCase();
}

/** The parser calls itself for each level; its scanner does not. The numbers are `SyntaxKind`'s, which has no values in Node. */
const [OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET, END] = [1, 2, 3, 4, 17];

function checkNesting(text: string, file: string): void {
  const scanner = createScanner(text, true);
  const open: (number | undefined)[] = [];
  for (let token: number = scanner.scan(); token !== END; token = scanner.scan()) {
    if (token === OPEN_BRACE) open.push(CLOSE_BRACE);
    else if (token === OPEN_BRACKET) open.push(CLOSE_BRACKET);
    else if (token === open.at(-1)) open.pop();
    if (open.length <= DEEPEST) continue;
    const [line, column] = lineAndColumn(text, scanner.getTokenOffset());
    throw new WranglerFault([`${file}:${line}:${column}: ${TOO_DEEP}`]);
  }
}

const TOO_DEEP = `objects and lists are nested deeper than ${DEEPEST}`;

function lineAndColumn(text: string, offset: number): [number, number] {
  const lines = text.slice(0, offset).split(/\r\n|\r|\n/);
  return [lines.length, (lines.at(-1)?.length ?? 0) + 1];
}

/** The value at a place, or the nearest around it that is there. */
function nodeAt(tree: Node, place: Place): Node {
  for (let length = place.length; length > 0; length--) {
    const node = findNodeAtLocation(tree, place.slice(0, length));
    // A member's line is the one of its name.
    if (node) return node.parent?.type === 'property' ? node.parent : node;
  }
  return tree;
}

/** What no later step can take: dotted keys of TOML nest without brackets, and `__proto__` is lost in plain objects. */
function findFault(root: Tree): { place: Place; what: string } | undefined {
  const waiting: { value: object; place: Place }[] = [{ value: root, place: [] }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { value, place } = next;
    if (place.length >= DEEPEST) return { place: place.slice(0, 1), what: TOO_DEEP };
    for (const [name, member] of Object.entries(value)) {
      const inner = [...place, Array.isArray(value) ? Number(name) : name];
      if (name === '__proto__') return { place: inner, what: `${placeName(inner)}: is no name that can be used` };
      if (typeof member === 'object' && member !== null) waiting.push({ value: member, place: inner });
    }
  }
  return undefined;
}

/** An empty list or object, and false: build tools write them for all that a project does not use. */
export function isNothing(value: unknown): boolean {
  if (isTree(value)) return Object.values(value).every(isNothing);
  return (
    value === undefined ||
    value === null ||
    value === false ||
    value === '' ||
    (Array.isArray(value) && value.length === 0)
  );
}
