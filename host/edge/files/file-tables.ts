/** Which request a static file answers: the tables that control writes, read when a deployment is first asked for one. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { answerField } from '../../http/message/fields.ts';
import { parseResponseHead, type ResponseHead } from '../../http/message/head.ts';
import type { FileTable, RouteFiles } from '../../shared/contracts.ts';

/** Of all tables that are kept, as text; they take about three times as much. The one unused for longest goes first. */
const MAX_BYTES = 24 * 1_048_576;
/** How long a table that is not there is not looked for, ms. */
const MISSING_MS = 2_000;
const HASH = /^[0-9a-f]{64}$/;
const NAME = /^[0-9a-f]{64}\.[0-9a-f]{16}$/;

/** Fields of the answers at some paths, and what goes before each answer. */
export interface FileFields {
  head: ResponseHead;
  cacheControl: string;
  coded: boolean;
}

export interface PlainFile {
  hash: string;
  fields: FileFields;
}

export interface PlainFiles {
  /** By raw paths of requests. */
  files: ReadonlyMap<string, PlainFile>;
  exceptHosts: readonly string[];
}

const NONE: PlainFiles = { files: new Map(), exceptHosts: [] };

interface Kept {
  files: PlainFiles;
  bytes: number;
  /** Until when it need not be looked for again; 0: it was found. */
  missingUntil: number;
}

export class FileTables {
  readonly #kept = new Map<string, Kept>();
  readonly #reading = new Map<string, Promise<PlainFiles>>();
  #bytes = 0;

  of({ folder, table }: RouteFiles): PlainFiles | Promise<PlainFiles> {
    const place = path.join(folder, 'tables', table);
    const kept = this.#kept.get(place);
    if (kept && (kept.missingUntil === 0 || performance.now() < kept.missingUntil)) {
      // The one used last is the last one.
      if (this.#kept.size > 1) {
        this.#kept.delete(place);
        this.#kept.set(place, kept);
      }
      return kept.files;
    }
    let reading = this.#reading.get(place);
    if (!reading) {
      reading = this.#read(place, table).finally(() => this.#reading.delete(place));
      this.#reading.set(place, reading);
    }
    return reading;
  }

  async #read(place: string, name: string): Promise<PlainFiles> {
    let kept: Kept;
    try {
      if (!NAME.test(name)) throw new Error('It is no name of a table.');
      const text = await readFile(place, 'utf8');
      kept = { files: filesOf(JSON.parse(text) as FileTable), bytes: text.length + 1_024, missingUntil: 0 };
    } catch {
      // Not made yet, or none of ours: instances answer.
      kept = { files: NONE, bytes: 1_024, missingUntil: performance.now() + MISSING_MS };
    }
    this.#bytes += kept.bytes - (this.#kept.get(place)?.bytes ?? 0);
    this.#kept.delete(place);
    this.#kept.set(place, kept);
    for (const [oldest, { bytes }] of this.#kept) {
      if (this.#bytes <= MAX_BYTES || oldest === place) break;
      this.#kept.delete(oldest);
      this.#bytes -= bytes;
    }
    return kept.files;
  }
}

function filesOf({ fields, paths, exceptHosts = [] }: FileTable): PlainFiles {
  const read = fields.map(({ lines, cacheControl, coded }): FileFields => {
    const text = `HTTP/1.1 200 OK\r\ncontent-length: 0\r\n${lines}`;
    const head = parseResponseHead(text, 'GET', answerField);
    return { head, cacheControl: cacheControl === undefined ? '' : `cache-control: ${cacheControl}\r\n`, coded };
  });
  const files = new Map<string, PlainFile>();
  for (const [place, [hash, index]] of Object.entries(paths)) {
    const found = read[index];
    // Names of files come from here alone.
    if (found && HASH.test(hash)) files.set(place, { hash, fields: found });
  }
  return { files, exceptHosts };
}
