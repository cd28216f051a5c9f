/**
 * Versions of tenants' code on disk, named by the digest of their content: `<folder>/<sha256>/` holds the modules, a
 * manifest and the source map. A version is complete when it has its name, and never changes.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { CodeBundle, CodeModule } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';

interface Manifest {
  modules: { name: string; type: CodeModule['type']; file: string }[];
  sourceMap: boolean;
}

const MANIFEST = 'manifest.json';
const SOURCE_MAP = 'source-map.json';
const DIGEST = /^[0-9a-f]{64}$/;
/** Bundles kept in memory, bytes: a cold start should not read the disk. */
const CACHE_BYTES = 32 * 1_048_576;

export class CodeStore {
  readonly #folder: string;
  /** Least recently used first. */
  readonly #cache = new Map<string, CodeBundle>();
  #cachedBytes = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * Keeps a bundle; the same content is kept once.
   * @returns its digest; on disk, and safe from power loss, when this resolves
   */
  async put(bundle: CodeBundle): Promise<string> {
    const digest = digestOf(bundle);
    const target = path.join(this.#folder, digest);
    if (await this.#exists(target)) return digest;
    const temporary = path.join(this.#folder, `.new-${randomUUID()}`);
    await mkdir(temporary, { recursive: true, mode: 0o700 });
    try {
      const manifest: Manifest = { modules: [], sourceMap: bundle.sourceMap !== undefined };
      for (const [index, { name, type, body }] of bundle.modules.entries()) {
        const file = `module-${index}`;
        manifest.modules.push({ name, type, file });
        await writeDurably(path.join(temporary, file), body);
      }
      if (bundle.sourceMap !== undefined) await writeDurably(path.join(temporary, SOURCE_MAP), bundle.sourceMap);
      await writeDurably(path.join(temporary, MANIFEST), JSON.stringify(manifest));
      await syncFolder(temporary);
      await rename(temporary, target).catch(async (error) => {
        // Somebody else stored the same content meanwhile.
        if (!(await this.#exists(target))) throw error;
      });
      await syncFolder(this.#folder);
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
    this.#remember(digest, bundle);
    return digest;
  }

  /** @throws Problem start_failed when it is not there, or not what it was */
  async get(digest: string): Promise<CodeBundle> {
    const cached = this.#cache.get(digest);
    if (cached) {
      this.#cache.delete(digest);
      this.#cache.set(digest, cached);
      return cached;
    }
    if (!DIGEST.test(digest)) throw new Problem('internal', `not a digest: ${digest}`);
    const bundle = await this.#read(path.join(this.#folder, digest)).catch((error: Error) => {
      throw new Problem('start_failed', 'The code of this version is missing on this host.', { cause: error });
    });
    if (digestOf(bundle) !== digest) {
      throw new Problem('start_failed', 'The code of this version is damaged on this host; deploy it again.');
    }
    this.#remember(digest, bundle);
    return bundle;
  }

  /** Every digest that is stored. */
  async list(): Promise<string[]> {
    return (await readdir(this.#folder).catch(() => [])).filter((name) => DIGEST.test(name));
  }

  /** Removes a version that nothing refers to any more. Idempotent. */
  async remove(digest: string): Promise<void> {
    if (!DIGEST.test(digest)) return;
    const cached = this.#cache.get(digest);
    if (cached) this.#cachedBytes -= sizeOf(cached);
    this.#cache.delete(digest);
    await rm(path.join(this.#folder, digest), { recursive: true, force: true });
  }

  async #read(folder: string): Promise<CodeBundle> {
    const manifest = JSON.parse(await readFile(path.join(folder, MANIFEST), 'utf8')) as Manifest;
    return {
      modules: await Promise.all(
        manifest.modules.map(async ({ name, type, file }) => ({
          name,
          type,
          body: new Uint8Array(await readFile(path.join(folder, file))),
        })),
      ),
      sourceMap: manifest.sourceMap ? await readFile(path.join(folder, SOURCE_MAP), 'utf8') : undefined,
    };
  }

  async #exists(folder: string): Promise<boolean> {
    return readFile(path.join(folder, MANIFEST)).then(
      () => true,
      () => false,
    );
  }

  #remember(digest: string, bundle: CodeBundle): void {
    if (this.#cache.has(digest)) return;
    this.#cache.set(digest, bundle);
    this.#cachedBytes += sizeOf(bundle);
    for (const [oldest, old] of this.#cache) {
      if (this.#cachedBytes <= CACHE_BYTES) break;
      this.#cache.delete(oldest);
      this.#cachedBytes -= sizeOf(old);
    }
  }
}

/** SHA-256 over names, types, lengths and contents, hexadecimal. */
export function digestOf({ modules, sourceMap }: CodeBundle): string {
  const hash = createHash('sha256');
  const add = (bytes: string | Uint8Array): void => {
    const content = Buffer.from(bytes as Uint8Array);
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(content.length));
    hash.update(length).update(content);
  };
  for (const { name, type, body } of modules) {
    add(name);
    add(type);
    add(body);
  }
  add(sourceMap ?? '');
  return hash.digest('hex');
}

/** Bytes that a bundle brings to the tenant's process. */
export function codeBytes(bundle: CodeBundle): number {
  return bundle.modules.reduce((sum, { body }) => sum + body.byteLength, 0);
}

function sizeOf(bundle: CodeBundle): number {
  return codeBytes(bundle) + (bundle.sourceMap?.length ?? 0);
}

async function writeDurably(file: string, content: string | Uint8Array): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
