/**
 * The database of an object, put together from what workerd's cluster mode (1.20261117.1) keeps of it in the bucket: a
 * snapshot, and the log after it. Seen in what workerd writes; whatever is not known here, or leaves a gap, is refused.
 */
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { CompositeList, Message, ObjectSize, Struct } from 'capnp-ts';
import { MOST_BYTES } from './snapshot.ts';

const unpack = promisify(gunzip);
const PAGE = 4_096;
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

/** A database while it is put together. */
export class ObjectImage {
  #bytes = Buffer.alloc(0);
  /** The next entry. */
  #next: { epoch: number; number: number } | undefined;

  /** @throws Error where it is no snapshot that is known */
  static async of(snapshot: Buffer): Promise<ObjectImage> {
    const bytes = await unpack(snapshot, { maxOutputLength: MOST_BYTES });
    const { entry, end } = entryAt(bytes, 0);
    const [file, ...others] = entry.files;
    if (!file || others.length > 0 || end + file.size !== bytes.length)
      throw new Error('the snapshot is none that is known');
    const image = new ObjectImage();
    image.#bytes = Buffer.from(bytes.subarray(end));
    image.#next = { epoch: entry.epoch, number: entry.number };
    return image;
  }

  /** How many entries are in it. */
  get number(): number {
    return this.#next?.number ?? 0;
  }

  /** @throws Error for what is not known, and for a gap */
  async add(log: Buffer): Promise<void> {
    const bytes = await unpack(log, { maxOutputLength: MOST_BYTES });
    for (let at = 0; at < bytes.length; ) {
      const { entry, end } = entryAt(bytes, at);
      this.#apply(entry);
      at = end;
    }
  }

  /** @throws Error where it is no whole database */
  get database(): Buffer {
    const bytes = this.#bytes;
    if (bytes.length > 0 && (bytes.length < PAGE || bytes.readUInt32BE(28) * PAGE !== bytes.length))
      throw new Error('it is no whole database');
    return bytes;
  }

  #apply(entry: Entry): void {
    const { epoch, number, kind } = entry;
    this.#next ??= { epoch, number: 0 };
    // Entries that were written together may begin before the snapshot.
    if (epoch === this.#next.epoch && number < this.#next.number) return;
    // Numbers may be left out: a commit says after which it is.
    const after = kind === COMMIT ? entry.after : number;
    if (epoch !== this.#next.epoch || after !== this.#next.number)
      throw new Error(`its log has entry ${number} of epoch ${epoch} after ${JSON.stringify(this.#next)}`);
    this.#next = { epoch, number: number + 1 };
    if (kind === COMMIT) this.#commit(entry);
    else if (kind === REMOVE) this.#bytes = Buffer.alloc(0);
    else if (kind === WRITE && entry.isAtStart) this.#write(0, entry.bytes);
    else if (kind !== CREATE || this.#bytes.length > 0)
      throw new Error(`an entry of its log is none that is known (${kind})`);
  }

  #commit({ pages, pageCount }: Entry): void {
    for (const { number, bytes } of pages) this.#write((number - 1) * PAGE, bytes);
    const size = pageCount * PAGE;
    this.#grow(size);
    this.#bytes = this.#bytes.subarray(0, size);
  }

  #write(at: number, bytes: Uint8Array): void {
    this.#grow(at + bytes.length);
    this.#bytes.set(bytes, at);
  }

  #grow(size: number): void {
    if (size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
    if (size > this.#bytes.length) this.#bytes = Buffer.concat([this.#bytes, Buffer.alloc(size - this.#bytes.length)]);
  }
}

/** A Cap'n Proto message among others, or before other bytes. */
function entryAt(bytes: Buffer, at: number): { entry: Entry; end: number } {
  const segments = bytes.readUInt32LE(at) + 1;
  if (segments > 65_536) throw new Error('it is no message that is known');
  let end = at + Math.ceil((4 + 4 * segments) / WORD) * WORD;
  for (let index = 0; index < segments; index++) end += WORD * bytes.readUInt32LE(at + 4 + 4 * index);
  if (end > bytes.length) throw new Error('a message of it is cut off');
  const message = new Message(Uint8Array.from(bytes.subarray(at, end)).buffer, false);
  return { entry: message.getRoot(Entry), end };
}
