/**
 * Answers requests with static files, where control's table says that a file is the answer. Everything else, and what is
 * not on the disk any more, is left to an instance.
 */
import path from 'node:path';
import type { BulkTurns } from '../../http/client/connection.ts';
import type { ReadMemory } from '../../http/message/blocks.ts';
import { matches, rangeOf } from '../../http/message/conditions.ts';
import type { RequestHead, ResponseHead } from '../../http/message/head.ts';
import type { Route, RouteFiles } from '../../shared/contracts.ts';
import { acceptedCodings, CODING_NAMES, type Coding, type Wanted, wanted } from './conditions.ts';
import { FileAnswer } from './file-answer.ts';
import { FileTables, type PlainFile, type PlainFiles } from './file-tables.ts';
import { KeptFiles, type OpenFile } from './kept-files.ts';

/** How long a compressed form that is not there is not looked for, ms. */
const MISSING_MS = 10_000;
/** Compressed forms that are known not to be there. */
const MAX_MISSING = 20_000;

/** Whose file a request asks for, and by which name. */
export interface FilePlace {
  route: Pick<Route, 'slug' | 'files'>;
  /** Raw path and query, as the tenant sees them. */
  tenantPath: string;
  hostName: string;
  /** Previews have files of their own, in instances of their own. */
  preview: string | undefined;
}

/** Turns for large answers, a line for each tenant. */
export interface BulkLines {
  lineOf(slug: string): BulkTurns;
  /** Forgets those that are empty. */
  trim(): void;
}

export class Files {
  readonly #tables = new FileTables();
  readonly #files = new KeptFiles();
  readonly #missing = new Map<string, number>();
  readonly #memory: ReadMemory;
  readonly #pace: BulkLines;

  constructor(memory: ReadMemory, pace: BulkLines) {
    this.#memory = memory;
    this.#pace = pace;
  }

  /** @returns undefined: an instance has to answer */
  answer(place: FilePlace, head: RequestHead): FileAnswer | undefined | Promise<FileAnswer | undefined> {
    const { files } = place.route;
    if (!files || place.preview !== undefined || (head.method !== 'GET' && head.method !== 'HEAD')) return undefined;
    if (head.upgrade || head.framing.kind !== 'none') return undefined;
    const table = this.#tables.of(files);
    if (table instanceof Promise) return table.then((read) => this.#answerFrom(read, place, files, head));
    return this.#answerFrom(table, place, files, head);
  }

  #answerFrom(table: PlainFiles, { route, tenantPath, hostName }: FilePlace, files: RouteFiles, head: RequestHead) {
    const query = tenantPath.indexOf('?');
    const found = table.files.get(query < 0 ? tenantPath : tenantPath.slice(0, query));
    if (!found || table.exceptHosts.some((end) => hostName.endsWith(end))) return undefined;
    return this.#answerWith(route.slug, files, head, found);
  }

  /** Called about twice a second. */
  sweep(): void {
    this.#files.sweep();
    this.#pace.trim();
  }

  #answerWith(
    slug: string,
    { folder }: RouteFiles,
    head: RequestHead,
    found: PlainFile,
  ): FileAnswer | Promise<FileAnswer | undefined> {
    const asked = wanted(head.fields);
    // Parts are of the file itself: a caller that asks for one wants to put them together.
    const codings = found.fields.coded && asked.range === undefined ? acceptedCodings(asked.acceptEncoding) : [];
    for (const coding of codings) {
      const place = path.join(folder, 'coded', `${found.hash}.${coding}`);
      const kept = this.#files.kept(place);
      if (kept && kept.size > 0) {
        kept.hold();
        return this.#make(slug, head, found, asked, kept, coding);
      }
      if (!kept && !this.#isMissing(place)) return this.#open(slug, folder, head, found, asked, codings);
    }
    const kept = this.#files.kept(path.join(folder, 'files', found.hash));
    if (!kept) return this.#open(slug, folder, head, found, asked, []);
    kept.hold();
    return this.#make(slug, head, found, asked, kept, undefined);
  }

  async #open(
    slug: string,
    folder: string,
    head: RequestHead,
    found: PlainFile,
    asked: Wanted,
    codings: readonly Coding[],
  ): Promise<FileAnswer | undefined> {
    for (const coding of codings) {
      const place = path.join(folder, 'coded', `${found.hash}.${coding}`);
      if (this.#isMissing(place)) continue;
      const file = await this.#files.open(place);
      if (file && file.size > 0) return this.#make(slug, head, found, asked, file, coding);
      file?.release();
      if (this.#missing.size >= MAX_MISSING) this.#missing.clear();
      this.#missing.set(place, performance.now() + MISSING_MS);
    }
    const file = await this.#files.open(path.join(folder, 'files', found.hash));
    return file && this.#make(slug, head, found, asked, file, undefined);
  }

  #isMissing(place: string): boolean {
    const until = this.#missing.get(place);
    if (until === undefined) return false;
    if (performance.now() < until) return true;
    this.#missing.delete(place);
    return false;
  }

  #make(
    slug: string,
    request: RequestHead,
    { hash, fields }: PlainFile,
    asked: Wanted,
    file: OpenFile,
    coding: Coding | undefined,
  ): FileAnswer {
    const etag = `"${hash}"`;
    const { size } = file;
    let text = `accept-ranges: bytes\r\netag: ${coding === undefined ? '' : 'W/'}${etag}\r\n${fields.head.fields}`;
    if (!asked.authorized && asked.range === undefined) text += fields.cacheControl;
    if (fields.coded) text += 'vary: accept-encoding\r\n';
    if (coding !== undefined) text += `content-encoding: ${CODING_NAMES[coding]}\r\n`;
    const head: ResponseHead = { ...fields.head, contentLength: String(size), fields: text };
    let body: [number, number] = [0, size];
    if (matches(asked.ifNoneMatch, etag)) {
      head.status = 304;
      head.contentLength = undefined;
      body = [0, 0];
    } else if (request.method === 'HEAD') body = [0, 0];
    else {
      const range = asked.ifRange === '' || asked.ifRange === etag ? rangeOf(asked.range, size) : undefined;
      if (range === 'none') {
        head.status = 416;
        head.fields += `content-range: bytes */${size}\r\n`;
        body = [0, 0];
      } else if (range) {
        head.status = 206;
        head.fields += `content-range: bytes ${range[0]}-${range[1] - 1}/${size}\r\n`;
        body = range;
      }
    }
    const length = body[1] - body[0];
    const bodiless = head.status === 304 || request.method === 'HEAD';
    head.reason = '';
    head.framing = bodiless ? { kind: 'none' } : { kind: 'length', length };
    return new FileAnswer(head, file, body, this.#memory, this.#pace.lineOf(slug));
  }
}
