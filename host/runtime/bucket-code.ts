/**
 * Versions of code in the bucket that all nodes share: an object a version, named by its digest. A node keeps copies of
 * those that it runs (code-store.ts), and compares with the digest what it takes from here.
 */
import { buffer } from 'node:stream/consumers';
import type { SharedFiles } from '../bindings/store-process/blobs/backend.ts';
import type { CodeBundle, CodeModule } from '../shared/contracts.ts';
import type { SharedCode } from './code-store.ts';

/** What was put is not removed for this long, ms: a deploy names it only once it is paid. */
const HOLD_MS = 3_600_000;
/** Bytes in front that say how long the head is. */
const LENGTH = 4;

/** What comes before the bodies, which follow in its order. */
interface Head {
  modules: { name: string; type: CodeModule['type']; size: number }[];
  sourceMap: string | undefined;
  entrypoints: string[] | undefined;
}

export class BucketCode implements SharedCode {
  readonly #files: SharedFiles;
  readonly #holdMs: number;
  readonly #mostBytes: number;

  /** @param files with nothing else among them @param options.mostBytes of a version that is read */
  constructor(files: SharedFiles, { holdMs = HOLD_MS, mostBytes = Number.POSITIVE_INFINITY } = {}) {
    this.#files = files;
    this.#holdMs = holdMs;
    this.#mostBytes = mostBytes;
  }

  /** What is there is written again: it is in use from now on, though no version names it yet. */
  async put(digest: string, bundle: CodeBundle): Promise<void> {
    const bytes = encode(bundle);
    await this.#files.write(digest, { length: bytes.length, chunks: [bytes] });
  }

  /** What is incomplete, or something else, has another digest than its name. */
  async get(digest: string): Promise<CodeBundle | undefined> {
    const bytes = await this.#files.whole(digest, this.#mostBytes, (file) => buffer(file));
    return bytes && decode(bytes);
  }

  /** Of all versions that are here. */
  async digests(): Promise<string[]> {
    return (await Array.fromAsync(this.#files.entries())).map(({ name }) => name);
  }

  /** Removes what nothing refers to. @param unused which of these digests that is */
  async sweep(unused: (digests: string[]) => Promise<string[]>): Promise<void> {
    const old: string[] = [];
    for await (const { name, changedAt } of this.#files.entries()) if (this.#isOld(changedAt)) old.push(name);
    for (const digest of await unused(old)) {
      // It may have been put again, and named, while others were removed.
      const now = await this.#files.stat(digest);
      if (now && this.#isOld(now.changedAt) && (await unused([digest])).length > 0) await this.#files.remove(digest);
    }
  }

  #isOld(changedAt: number): boolean {
    return Date.now() - changedAt > this.#holdMs;
  }
}

function encode({ modules, sourceMap, entrypoints }: CodeBundle): Buffer {
  const head: Head = {
    modules: modules.map(({ name, type, body }) => ({ name, type, size: body.byteLength })),
    sourceMap,
    entrypoints,
  };
  const text = Buffer.from(JSON.stringify(head));
  const length = Buffer.alloc(LENGTH);
  length.writeUInt32BE(text.length);
  return Buffer.concat([length, text, ...modules.map(({ body }) => body)]);
}

/** @throws Error for what is cut off */
function decode(bytes: Buffer): CodeBundle {
  let at = LENGTH + bytes.readUInt32BE(0);
  const { modules, sourceMap, entrypoints } = JSON.parse(bytes.toString('utf8', LENGTH, at)) as Head;
  const read = modules.map(({ name, type, size }) => {
    const body = new Uint8Array(bytes.subarray(at, at + size));
    at += size;
    return { name, type, body };
  });
  return { modules: read, sourceMap, ...(entrypoints && { entrypoints }) };
}
