/**
 * The database of an object, put together from what workerd's cluster mode (1.20261117.1) keeps of it in the bucket: a
 * snapshot, and the log after it. Seen in what workerd writes; whatever is not known here, or leaves a gap, is refused.
 */
import type { FileHandle } from 'node:fs/promises';
import { CompositeList, Message, ObjectSize, Struct } from 'capnp-ts';
import { MOST_BYTES } from './snapshot.ts';
import { type Packed, Unpacked } from './unpacked.ts';

const PAGE = 4_096;
/** Where a SQLite file says how many pages it has. */
const PAGE_COUNT_AT = 28;
const WORD = 8;

/** Kinds of entries. */
const CREATE = 0;
/** Of everything: `deleteAll()`. */
const REMOVE = 1;
const WRITE = 5;
const COMMIT = 8;

class Page extends Struct {
  static override readonly _capnp = { displayName: 'Page', id: 'f000000000000001', size: new ObjectSize(WORD, 1) };
  get number(): number {
    return Struct.getUint32(0, this);
  }
  get bytes(): Uint8Array {
    return Struct.getData(0, this).toUint8Array();
  }
}

/** The file in a snapshot, whose bytes follow its message. */
class File extends Struct {
  static override readonly _capnp = { displayName: 'File', id: 'f000000000000002', size: new ObjectSize(5 * WORD, 1) };
  get size(): number {
    return Struct.getUint32(8, this) + Struct.getUint32(12, this) * 2 ** 32;
  }
}

/** An entry of the log, or the head of a snapshot. */
class Entry extends Struct {
  static override readonly _capnp = { displayName: 'Entry', id: 'f000000000000003', size: new ObjectSize(4 * WORD, 1) };
  get epoch(): number {
    return Struct.getUint32(0, this);
  }
  get number(): number {
    return Struct.getUint32(4, this);
  }
  get kind(): number {
    return Struct.getUint16(12, this);
  }
  /** Of a commit: the number that the one before it left. */
  get after(): number {
    return Struct.getUint32(16, this);
  }
  /** Of the file after a commit. */
  get pageCount(): number {
    return Struct.getUint32(20, this);
  }
  /** Where a write begins; other places than 0 were never seen, and which of the words it is is not known. */
  get isAtStart(): boolean {
    return [16, 20, 24, 28].every((at) => Struct.getUint32(at, this) === 0);
  }
  get bytes(): Uint8Array {
    return Struct.getData(0, this).toUint8Array();
  }
  get pages(): Page[] {
    return Struct.getList(0, CompositeList(Page), this).toArray();
  }
  get files(): File[] {
    return Struct.getList(0, CompositeList(File), this).toArray();
  }
}

/** A database while it is put together, in a file: of its bytes in memory are those of one entry of the log at most. */
export class ObjectImage {
  readonly #file: FileHandle;
  #size = 0;
  /** The next entry. */
  #next: { epoch: number; number: number } | undefined;

  /** @param file empty, for reading and writing */
  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Before any entry of the log. @throws Error where it is no snapshot that is known */
  async begin(snapshot: Packed): Promise<void> {
    const bytes = new Unpacked(snapshot, MOST_BYTES);
    try {
      const entry = await entryOf(bytes);
      const [file, ...others] = entry?.files ?? [];
      if (!entry || !file || others.length > 0 || file.size > MOST_BYTES)
        throw new Error('the snapshot is none that is known');
      for await (const piece of bytes.rest()) await this.#write(this.#size, piece);
      if (this.#size !== file.size) throw new Error('the snapshot is not as long as it says');
      this.#next = { epoch: entry.epoch, number: entry.number };
    } finally {
      bytes.close();
    }
  }

  /** How many entries are in it. */
  get number(): number {
    return this.#next?.number ?? 0;
  }

  /** @throws Error for what is not known, and for a gap */
  async add(log: Packed): Promise<void> {
    const bytes = new Unpacked(log, MOST_BYTES);
    try {
      for (let entry = await entryOf(bytes); entry; entry = await entryOf(bytes)) await this.#apply(entry);
    } finally {
      bytes.close();
    }
  }

  /** @returns its size, once it is on the disk for good @throws Error where it is no whole database */
  async finish(): Promise<number> {
    if (this.#size > 0) {
      const { bytesRead, buffer } = await this.#file.read(Buffer.alloc(4), 0, 4, PAGE_COUNT_AT);
      if (bytesRead < 4 || buffer.readUInt32BE(0) * PAGE !== this.#size) throw new Error('it is no whole database');
    }
    await this.#file.sync();
    return this.#size;
  }

  async #apply(entry: Entry): Promise<void> {
    const { epoch, number, kind } = entry;
    this.#next ??= { epoch, number: 0 };
    // Entries that were written together may begin before the snapshot.
    if (epoch === this.#next.epoch && number < this.#next.number) return;
    // Numbers may be left out: a commit says after which it is.
    const after = kind === COMMIT ? entry.after : number;
    if (epoch !== this.#next.epoch || after !== this.#next.number)
      throw new Error(`its log has entry ${number} of epoch ${epoch} after ${JSON.stringify(this.#next)}`);
    this.#next = { epoch, number: number + 1 };
    if (kind === COMMIT) await this.#commit(entry);
    else if (kind === REMOVE) await this.#resize(0);
    else if (kind === WRITE && entry.isAtStart) await this.#write(0, entry.bytes);
    else if (kind !== CREATE || this.#size > 0) throw new Error(`an entry of its log is none that is known (${kind})`);
  }

  async #commit({ pages, pageCount }: Entry): Promise<void> {
    for (const { number, bytes } of pages) await this.#write((number - 1) * PAGE, bytes);
    await this.#resize(pageCount * PAGE);
  }

  async #write(at: number, bytes: Uint8Array): Promise<void> {
    const end = at + bytes.length;
    if (at < 0 || end > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
    for (let done = 0; done < bytes.length; )
      done += (await this.#file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
    this.#size = Math.max(this.#size, end);
  }

  async #resize(size: number): Promise<void> {
    if (size === this.#size) return;
    if (size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
    await this.#file.truncate(size);
    this.#size = size;
  }
}

/** The next Cap'n Proto message. @returns undefined at the end */
async function entryOf(bytes: Unpacked): Promise<Entry | undefined> {
  const first = await bytes.take(4);
  if (!first) return undefined;
  const segments = first.readUInt32LE(0) + 1;
  if (segments > 65_536) throw new Error('it is no message that is known');
  const sizes = await bytes.take(Math.ceil((4 + 4 * segments) / WORD) * WORD - 4);
  let size = 0;
  for (let index = 0; index < segments; index++) size += WORD * (sizes?.readUInt32LE(4 * index) ?? 0);
  const body = size > MOST_BYTES ? undefined : await bytes.take(size);
  if (!sizes || !body) throw new Error('a message of it is cut off');
  return new Message(Uint8Array.from(Buffer.concat([first, sizes, body])).buffer, false).getRoot(Entry);
}
