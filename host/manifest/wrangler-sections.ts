/**
 * Which section of wrangler's configuration counts for a key, the top level or the named environment's, and what is said
 * of the file: what is refused, what is ignored, what has a wrong form.
 */
import { closest, distance } from 'fastest-levenshtein';
import { type Key, WRANGLER_KEYS, type WranglerKey } from './wrangler-keys.ts';
import type { WranglerProject } from './wrangler-project.ts';
import {
  at,
  type Document,
  isNothing,
  isTree,
  MOST_NAMED,
  type Place,
  placeName,
  type Tree,
  WranglerFault,
} from './wrangler-text.ts';

/** What is said of a file. */
export class Notes {
  readonly #file: string;
  readonly #document: Document;
  readonly #refused: WranglerProject['refused'] = [];
  readonly #ignored = new Map<string, string>();
  readonly #faults: string[] = [];

  constructor(file: string, document: Document) {
    this.#file = file;
    this.#document = document;
  }

  refuse(place: Place, reason: string): void {
    const line = this.#document.line(place);
    this.#refused.push({ key: placeName(place), file: this.#file, ...(line === undefined ? {} : { line }), reason });
  }

  /** What is ignored in each element of a list is said once. */
  ignore(place: Place, reason: string): void {
    this.#ignored.set(placeName(place).replaceAll(/\[\d+\]/g, '[]'), reason);
  }

  ignoreUnknown(place: Place, known: Iterable<string>): void {
    const name = String(place.at(-1));
    const near = name.length <= 40 ? closest(name, [...known]) : '';
    const hint = distance(name, near) <= Math.min(2, name.length / 2) ? `; did you mean ${near}?` : '';
    this.ignore(place, `it is not a key of wrangler's configuration${hint}`);
  }

  /** To find a line takes a while: those that are only counted have none. */
  fault(place: Place, what: string): void {
    const named = this.#faults.length < MOST_NAMED;
    this.#faults.push(named ? at(this.#file, this.#document.line(place), `${placeName(place)}: ${what}`) : '');
  }

  throwFaults(): void {
    if (this.#faults.length > 0) throw new WranglerFault(this.#faults);
  }

  result(): Pick<WranglerProject, 'refused' | 'ignored'> {
    return { refused: this.#refused, ignored: [...this.#ignored].map(([key, reason]) => ({ key, reason })) };
  }
}

/** The top level and the named environment, and which of them counts for a key. */
export class Sections {
  readonly environment: string | undefined;
  readonly #top: Tree;
  readonly #own: Tree | undefined;

  constructor(top: Tree, environment: string | undefined, notes: Notes) {
    this.#top = top;
    // Like wrangler, which takes `--env ""` for the top level.
    this.environment = environment || undefined;
    this.#own = this.environment === undefined ? undefined : this.#named(this.environment, notes);
    this.#noteUnknown(top, [], notes);
    if (this.#own) this.#noteUnknown(this.#own, this.#prefix(), notes);
  }

  #prefix(): Place {
    return this.environment === undefined ? [] : ['env', this.environment];
  }

  #named(name: string, notes: Notes): Tree {
    const all = isTree(this.#top.env) ? this.#top.env : {};
    const own = Object.hasOwn(all, name) ? all[name] : undefined;
    if (isTree(own)) return own;
    const names = Object.keys(all).join(', ');
    if (own !== undefined) notes.fault(['env', name], 'expected an object');
    else notes.fault(['env'], `has no environment ${name}; ${names ? `there are: ${names}` : 'there are none'}`);
    notes.throwFaults();
    return {};
  }

  #noteUnknown(section: Tree, prefix: Place, notes: Notes): void {
    for (const name of Object.keys(section)) {
      const key = WRANGLER_KEYS.get(name);
      if (!key) notes.ignoreUnknown([...prefix, name], WRANGLER_KEYS.keys());
      else if (key.scope === 'top' && prefix.length > 0) {
        notes.ignore([...prefix, name], 'wrangler reads it at the top level only');
      } else if (key.scope === 'own' && prefix.length === 0 && this.#own && !isNothing(section[name])) {
        if (this.#own[name] !== undefined) continue;
        notes.ignore([name], `environments do not inherit it, and ${placeName(this.#prefix())} has none of its own`);
      }
    }
  }

  /** Where the value is that counts; nothing where there is none, or it asks for nothing. */
  find(name: string, { scope, harmless }: WranglerKey): Place | undefined {
    const own = scope === 'top' ? undefined : this.#own?.[name];
    const inherited = scope === 'own' && this.#own ? undefined : this.#top[name];
    const value = own ?? inherited;
    if (value === undefined || value === null || (harmless !== undefined && value === harmless)) return undefined;
    return own === undefined || own === null ? [name] : [...this.#prefix(), name];
  }

  place(name: string): Place {
    const key = WRANGLER_KEYS.get(name);
    return (key && this.find(name, key)) ?? [name];
  }
}

export function valueAt(root: Tree, place: Place): unknown {
  return place.reduce<unknown>((value, step) => (value as Record<string | number, unknown>)[step], root);
}

/** Elements that are named one by one. */
const MOST_ELEMENTS = 32;

/** Says what is refused or ignored of a value, by its key. */
export function judge(value: unknown, place: Place, key: Key, notes: Notes, offered?: ReadonlySet<string>): void {
  if (isNothing(value)) return;
  const { use, reason = '', parts, each, members } = key;
  if (use === 'ignored') notes.ignore(place, reason);
  if (use === 'refused' && !offered?.has(String(place.at(-1)))) {
    for (const part of partsOf(value, place, parts, each)) notes.refuse(part, reason);
  }
  if (!members) return;
  const objects = Array.isArray(value)
    ? value.map((one, index) => [one, [...place, index]] as const)
    : [[value, place] as const];
  for (const [object, around] of objects) {
    if (!isTree(object)) continue;
    for (const [name, inner] of Object.entries(object)) {
      const member = Object.hasOwn(members, name) ? members[name] : undefined;
      if (member) judge(inner, [...around, name], member, notes);
      else notes.ignoreUnknown([...around, name], Object.keys(members));
    }
  }
}

/** Where it is refused: `queues.producers`, `durable_objects.bindings[0]`, or the key itself. */
function partsOf(value: unknown, place: Place, parts: readonly string[] = [], each = false): Place[] {
  const found = parts
    .filter((part) => isTree(value) && !isNothing(value[part]))
    .flatMap((part): Place[] => {
      const inner = (value as Tree)[part];
      if (!each || !Array.isArray(inner)) return [[...place, part]];
      return inner.slice(0, MOST_ELEMENTS).map((_, index) => [...place, part, index]);
    });
  return found.length > 0 ? found : [place];
}
