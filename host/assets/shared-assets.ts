/**
 * Static files in the bucket that all nodes share: `<tenant>/files/<sha256>` and `<tenant>/lists/<sha256>`, as on one box.
 * Nodes keep copies (asset-store.ts), and compare with its digest what they take from here.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import type { SharedFile, SharedFiles } from '../bindings/store-process/blobs/backend.ts';
import type { AssetList } from './asset-list.ts';

/** Of the largest file, and of the longest list: 20,000 paths of a kilobyte. */
const MOST_BYTES = 26 * 1_048_576;

type Kind = 'files' | 'lists';

export class SharedAssets {
  readonly #files: SharedFiles;

  /** @param files with nothing else among them */
  constructor(files: SharedFiles) {
    this.#files = files;
  }

  /** What is there is written again: it is in use from now on, though no list names it yet. */
  async put(tenant: string, kind: Kind, name: string, file: string): Promise<void> {
    const { size } = await stat(file);
    await this.#files.write(`${tenant}/${kind}/${name}`, { length: size, stream: createReadStream(file) });
  }

  async putText(tenant: string, kind: Kind, name: string, text: string): Promise<void> {
    const bytes = Buffer.from(text);
    await this.#files.write(`${tenant}/${kind}/${name}`, { length: bytes.length, chunks: [bytes] });
  }

  /** @throws Error where it is not there, or not what its name says */
  async fetch(tenant: string, hash: string, to: string): Promise<void> {
    await this.#read(`${tenant}/files/${hash}`, createWriteStream(to, { flags: 'wx', mode: 0o644 }));
  }

  /** Reads all of it. @returns its bytes @throws Error where it is not there, or not what its name says */
  check(tenant: string, kind: Kind, name: string): Promise<number> {
    return this.#read(`${tenant}/${kind}/${name}`, new Writable({ write: (_piece, _encoding, done) => done() }));
  }

  async #read(name: string, to: Writable): Promise<number> {
    const digest = createHash('sha256');
    const bytes = await this.#files.whole(name, MOST_BYTES, async (file, size) => {
      await pipeline(
        file,
        async function* (pieces: AsyncIterable<Uint8Array>) {
          for await (const piece of pieces) {
            digest.update(piece);
            yield piece;
          }
        },
        to,
      );
      return size;
    });
    if (bytes === undefined) throw new Error(`${name} is not in the bucket`);
    if (digest.digest('hex') !== nameOf(name)) throw new Error(`${name} is damaged in the bucket`);
    return bytes;
  }

  /** Undefined where it is not there. @throws Error where it is not what its name says */
  async text(tenant: string, kind: Kind, digest: string): Promise<string | undefined> {
    const name = `${tenant}/${kind}/${digest}`;
    const bytes = await this.#files.whole(name, MOST_BYTES, (file) => buffer(file));
    if (!bytes) return undefined;
    if (createHash('sha256').update(bytes).digest('hex') !== digest)
      throw new Error(`${name} is damaged in the bucket`);
    return bytes.toString();
  }

  async names(tenant: string, kind: Kind): Promise<string[]> {
    return (await this.#entries(tenant, kind)).map(({ name }) => nameOf(name));
  }

  /** Of all that the tenant has here, bytes. */
  async sizes(tenant: string): Promise<number[]> {
    return [...(await this.#entries(tenant, 'files')), ...(await this.#entries(tenant, 'lists'))].map(
      ({ size }) => size,
    );
  }

  /**
   * Removes what no list needs that a version names, or that another node may be about to name.
   * @param used digests of the lists of versions
   * @param unnamedMs how long what nothing names stays
   */
  async collect(tenant: string, used: ReadonlySet<string>, unnamedMs: Record<Kind, number>): Promise<void> {
    const isOld = (kind: Kind, { changedAt }: SharedFile) => Date.now() - changedAt > unnamedMs[kind];
    const files = (await this.#entries(tenant, 'files')).filter((file) => isOld('files', file));
    // Listed after the files: whoever names one of them has put the list before it looks for the file.
    const kept = new Set<string>();
    for (const list of await this.#entries(tenant, 'lists')) {
      if (!used.has(nameOf(list.name)) && isOld('lists', list)) {
        await this.#files.remove(list.name);
        continue;
      }
      const text = await this.text(tenant, 'lists', nameOf(list.name));
      for (const hash of Object.values((JSON.parse(text ?? '{"files":{}}') as AssetList).files)) kept.add(hash);
    }
    for (const { name } of files) {
      if (kept.has(nameOf(name))) continue;
      // Sent again since it was listed?
      const now = await this.#files.stat(name);
      if (now && isOld('files', now)) await this.#files.remove(name);
    }
  }

  purge(tenant: string): Promise<void> {
    return this.#files.destroy(`${tenant}/`);
  }

  async #entries(tenant: string, kind: Kind): Promise<SharedFile[]> {
    return Array.fromAsync(this.#files.entries(`${tenant}/${kind}/`));
  }
}

function nameOf(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1);
}
