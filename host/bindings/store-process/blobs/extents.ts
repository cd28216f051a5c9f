/**
 * Values of middle size in one file: too large to be written twice, to a log and to its place, and too small for a file
 * and two syncs each. A value lies in an extent, some pages in a row, which its name tells. The index knows which are
 * in use, and nothing else does: whatever stopped the process, an extent that no row names is free.
 *
 * Many values share one sync. A value is named in the index only after it, and its extent is used again only once the
 * row that named it is gone for good; so a row never names bytes that are not there, or that are another value's.
 */
import {
  closeSync,
  constants,
  existsSync,
  fdatasync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { SharedSync } from '../../../shared/shared-sync.ts';
import { syncFolder } from '../folders.ts';
import { readExactly } from './files.ts';

/** The smallest value that is worth an extent, bytes: below, a row of the index costs less. */
export const SMALLEST_EXTENT = 16 * 1024;

/** As in memory and on most disks: an extent shares its pages with no other. */
const PAGE_BYTES = 4_096;

/** Where a value goes. */
export interface Extent {
  name: string;
  descriptor: number;
  /** In the file, bytes. */
  position: number;
}

interface Place {
  /** The first of its pages. */
  page: number;
  /** Bytes of the value. */
  length: number;
}

/** A name is `@<first page>.<bytes>`; those of other blobs begin with a letter or a digit. */
export function isExtent(name: string): boolean {
  return name.startsWith('@');
}

/** SQL that is true for names of extents. @param column that holds names */
export function extentCondition(column: string): string {
  // `@` is the character before `A`: an index on the column finds them.
  return `${column} >= '@' AND ${column} < 'A'`;
}

export class Extents {
  readonly #path: string;
  readonly #pages = new PageMap();
  /** The file is there once it is needed. */
  #file: number | undefined;
  readonly #shared = new SharedSync((done) => fdatasync(this.#descriptor(), done));

  /** @param named names of all extents that are in use */
  constructor(path: string, named: Iterable<string>) {
    this.#path = path;
    for (const name of named) {
      const { page, length } = parse(name);
      this.#pages.use(page, pagesOf(length));
    }
    if (existsSync(path)) this.#trim();
  }

  /** An extent for a value, to be written through its descriptor. Sync and name it, or free it. */
  allocate(length: number): Extent {
    const descriptor = this.#descriptor();
    const page = this.#pages.take(pagesOf(length));
    return { name: `@${page}.${length}`, descriptor, position: page * PAGE_BYTES };
  }

  /** Resolves once all that was written before is on the disk. */
  sync(): Promise<void> {
    return this.#shared.sync();
  }

  /** Part of a value. Throws where the file is too short for it. */
  read(name: string, offset: number, length: number): Buffer {
    return readExactly(this.#descriptor(), positionOf(name) + offset, length);
  }

  /** Only once no row names it any more, and that is on the disk. */
  free(name: string): void {
    const { page, length } = parse(name);
    this.#pages.free(page, pagesOf(length));
  }

  /** Only when nothing is under way. */
  close(): void {
    if (this.#file === undefined) return;
    this.#trim();
    closeSync(this.#file);
    this.#file = undefined;
  }

  #descriptor(): number {
    if (this.#file !== undefined) return this.#file;
    const isNew = !existsSync(this.#path);
    this.#file = openSync(this.#path, constants.O_RDWR | constants.O_CREAT, 0o600);
    if (isNew) syncFolder(dirname(this.#path));
    return this.#file;
  }

  /** Gives back what lies behind the last value. */
  #trim(): void {
    const end = this.#pages.end * PAGE_BYTES;
    if (fstatSync(this.#descriptor()).size > end) ftruncateSync(this.#descriptor(), end);
  }
}

/** Copies extents to where they are in a file of their own. Answers how many bytes. */
export function copyExtents(source: string, target: string, names: readonly string[]): number {
  const [from, to] = [openSync(source, 'r'), openSync(target, 'wx', 0o600)];
  try {
    let bytes = 0;
    for (const name of names) {
      const position = positionOf(name);
      const value = readExactly(from, position, parse(name).length);
      for (let at = 0; at < value.length; ) at += writeSync(to, value, at, value.length - at, position + at);
      bytes += value.length;
    }
    fsyncSync(to);
    return bytes;
  } finally {
    closeSync(from);
    closeSync(to);
  }
}

/** Which pages are in use. */
export class PageMap {
  /** A byte for each page, 1 for those in use; beyond its end all are free. */
  #used = new Uint8Array(256);
  /** Pages behind the last one in use. */
  #end = 0;
  /** Free ones before the end. */
  #free = 0;
  /** Where the next search begins. */
  #next = 0;

  get end(): number {
    return this.#end;
  }

  use(page: number, count: number): void {
    const end = page + count;
    if (end > this.#used.length) {
      const larger = new Uint8Array(Math.max(end, 2 * this.#used.length));
      larger.set(this.#used);
      this.#used = larger;
    }
    this.#used.fill(1, page, end);
    this.#free -= Math.min(end, this.#end) - Math.min(page, this.#end);
    this.#free += Math.max(0, page - this.#end);
    this.#end = Math.max(this.#end, end);
  }

  free(page: number, count: number): void {
    this.#used.fill(0, page, page + count);
    this.#free += count;
    if (page + count < this.#end) return;
    const end = this.#used.lastIndexOf(1, page) + 1;
    this.#free -= this.#end - end;
    this.#end = end;
  }

  /** Pages in a row that were free, and are in use now. */
  take(count: number): number {
    const page = this.#search(count) ?? this.#end;
    this.use(page, count);
    this.#next = page + count;
    return page;
  }

  #search(count: number): number | undefined {
    const found = this.#between(count, this.#next);
    // From the beginning only where that promises something, so that a full file is not searched for each value.
    if (found !== undefined || this.#free * 4 < this.#end) return found;
    return this.#between(count, 0);
  }

  /** The first run of so many free pages behind `from` and before the end. */
  #between(count: number, from: number): number | undefined {
    if (this.#free < count) return undefined;
    for (let at = this.#used.indexOf(0, from); at >= 0 && at < this.#end; ) {
      const taken = this.#used.indexOf(1, at);
      if (taken < 0) return undefined;
      if (taken - at >= count) return at;
      at = this.#used.indexOf(0, taken);
    }
    return undefined;
  }
}

function positionOf(name: string): number {
  return parse(name).page * PAGE_BYTES;
}

function pagesOf(length: number): number {
  return Math.ceil(length / PAGE_BYTES);
}

function parse(name: string): Place {
  const [, page, length] = /^@(\d+)\.(\d+)$/.exec(name) ?? [];
  if (page === undefined || length === undefined) throw new Error(`no name of an extent: ${name}`);
  return { page: Number(page), length: Number(length) };
}
