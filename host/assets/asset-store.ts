/**
 * Static files of deployments, by content: `<tenants>/<tenant>/assets/files/<sha256>`, and lists of which one is where in
 * `assets/lists/<sha256>`. An update names a list; an instance sees its files as links in a folder of its own, edges find
 * them by the tables in `assets/tables`, and compressed in `assets/coded`.
 */
import { createHash, randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { chmod, constants, copyFile, link, mkdir, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { AssetSettings, RouteFiles } from '../shared/contracts.ts';
import { syncFile, writeDurably } from '../shared/durable-files.ts';
import { Problem } from '../shared/problem.ts';
import { type AssetList, MAX_FILE_BYTES } from './asset-list.ts';
import { compressFiles } from './coded-files.ts';
import { plainFiles, tableName } from './plain-files.ts';

const ASSETS = 'assets';
/** What was sent and is in no list goes after this long, ms: an update may be about to name it. */
const UNNAMED_MS = 3_600_000;
/** The same for lists, which are named within the update that sends them. */
const UNNAMED_LIST_MS = 10 * 60_000;
/** What the smallest file takes of the disk. */
const BLOCK = 4_096;
/** Links made at the same time. */
const AT_ONCE = 64;
/** Folders of a tenant's static files. */
const KINDS = ['files', 'lists', 'tables', 'coded'] as const;
type Kind = (typeof KINDS)[number];

export class AssetStore {
  readonly #tenants: string;
  readonly #maxBytes: (tenant: string) => Promise<number>;
  /** What a tenant keeps, bytes; counted when it is first asked for. */
  readonly #sizes = new Map<string, Promise<{ bytes: number }>>();
  /** Tables that are being made, one after the other. */
  #making: Promise<unknown> = Promise.resolve();
  /** Files that are being compressed, likewise. */
  #compressing: Promise<unknown> = Promise.resolve();

  /** @param maxBytes of one tenant's files, all versions together */
  constructor(tenantsFolder: string, maxBytes: (tenant: string) => Promise<number>) {
    this.#tenants = tenantsFolder;
    this.#maxBytes = maxBytes;
  }

  /** Which of these files the tenant has not sent. */
  async missing(tenant: string, hashes: Iterable<string>): Promise<string[]> {
    const known = new Set(await this.#names(tenant));
    return [...new Set(hashes)].filter((hash) => !known.has(hash));
  }

  /**
   * Keeps a file. It is on the disk when this resolves.
   * @param length that the sender declares, bytes
   * @throws Problem `too_large`, `quota_exceeded`, `bad_request` where it is not what its name says
   */
  async put(tenant: string, hash: string, body: ReadableStream<Uint8Array>, length: number): Promise<void> {
    if (!(length >= 0 && length <= MAX_FILE_BYTES))
      throw new Problem(
        'too_large',
        `A static file takes at most ${MAX_FILE_BYTES} bytes: send a smaller one, with its Content-Length.`,
      );
    const target = path.join(this.#folder(tenant, 'files'), hash);
    if (await stat(target).catch(() => undefined)) return void (await body.cancel());
    const giveBack = await this.#take(tenant, length);
    const draft = this.#draft(tenant, 'files');
    try {
      await mkdir(path.dirname(draft), { recursive: true, mode: 0o700 });
      const digest = createHash('sha256');
      let taken = 0;
      // Instances run as other users, and see the file through a link.
      await pipeline(
        Readable.fromWeb(body as never),
        async function* (pieces: AsyncIterable<Uint8Array>) {
          for await (const piece of pieces) {
            taken += piece.length;
            if (taken > length)
              throw new Problem(
                'bad_request',
                'The body is longer than its Content-Length; send the file again, unchanged.',
              );
            digest.update(piece);
            yield piece;
          }
        },
        createWriteStream(draft, { flags: 'wx', mode: 0o644 }),
      );
      if (taken !== length || digest.digest('hex') !== hash)
        throw new Problem('bad_request', 'The body is not the file that the path names by its SHA-256; send it again.');
      await syncFile(draft);
      await rename(draft, target);
    } catch (error) {
      giveBack();
      await rm(draft, { force: true });
      throw error;
    }
  }

  /**
   * Keeps a list.
   * @returns its digest
   * @throws Problem `conflict` where files of it were not sent
   */
  async keep(tenant: string, list: AssetList): Promise<string> {
    const hashes = new Set(Object.values(list.files));
    const missing = await this.missing(tenant, hashes);
    if (missing.length > 0) {
      throw new Problem(
        'conflict',
        `${missing.length} of the files were not sent, such as ${missing[0]}. Send them: PUT /_admin/<slug>/assets/<sha256>.`,
      );
    }
    const text = JSON.stringify(list);
    const digest = createHash('sha256').update(text).digest('hex');
    const file = path.join(this.#folder(tenant, 'lists'), digest);
    if (!(await stat(file).catch(() => undefined))) {
      const giveBack = await this.#take(tenant, Buffer.byteLength(text));
      const draft = this.#draft(tenant, 'lists');
      try {
        await writeDurably(draft, text);
        await rename(draft, file);
      } catch (error) {
        giveBack();
        await rm(draft, { force: true });
        throw error;
      }
    }
    // In use from now on, though no version names it yet.
    const now = new Date();
    await utimes(file, now, now);
    await Promise.all([this.#folder(tenant, 'files'), this.#folder(tenant, 'lists')].map(syncFile));
    return digest;
  }

  /** @throws Problem `start_failed` where it is not there */
  async list(tenant: string, digest: string): Promise<AssetList> {
    try {
      return JSON.parse(await readFile(path.join(this.#folder(tenant, 'lists'), digest), 'utf8')) as AssetList;
    } catch (error) {
      throw new Problem('start_failed', 'The static files of this version are not on the disk; deploy them again.', {
        cause: error,
      });
    }
  }

  /** Makes a folder of the files of a list, at their paths. @param to what was left there goes */
  async place(tenant: string, { files }: AssetList, to: string): Promise<void> {
    const from = this.#folder(tenant, 'files');
    await rm(to, { recursive: true, force: true });
    await mkdir(to, { recursive: true, mode: 0o755 });
    const folders = new Set(Object.keys(files).map((name) => path.dirname(path.join(to, name))));
    for (const folder of folders) await mkdir(folder, { recursive: true, mode: 0o755 });
    const entries = Object.entries(files);
    const next = async () => {
      for (let entry = entries.pop(); entry; entry = entries.pop()) {
        const [name, hash] = entry;
        const file = path.join(from, hash);
        // A backup that came back has files of the host's user alone.
        await chmod(file, 0o644);
        await linkOrCopy(file, path.join(to, name));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
  }

  /** Where edges find the files of a deployment, as soon as `prepare` was done. */
  route(tenant: string, settings: AssetSettings): RouteFiles {
    return { folder: path.join(this.#tenants, tenant, ASSETS), table: tableName(settings) };
  }

  /** Makes what edges serve the files from. What can be compressed is compressed some time later. */
  prepare(tenant: string, settings: AssetSettings): Promise<void> {
    const prepared = this.#making.then(() => this.#prepare(tenant, settings));
    this.#making = prepared.catch(() => undefined);
    return prepared;
  }

  async #prepare(tenant: string, settings: AssetSettings): Promise<void> {
    const file = path.join(this.#folder(tenant, 'tables'), tableName(settings));
    const list = await this.list(tenant, settings.list);
    if (!(await stat(file).catch(() => undefined))) {
      const text = JSON.stringify(await plainFiles(settings, list));
      const draft = this.#draft(tenant, 'tables');
      await mkdir(path.dirname(draft), { mode: 0o700 }).catch(() => undefined);
      try {
        await writeDurably(draft, text);
        await rename(draft, file);
      } catch (error) {
        await rm(draft, { force: true });
        throw error;
      }
      (await this.#size(tenant)).bytes += onDisk(Buffer.byteLength(text));
    }
    this.#compressing = this.#compressing
      .then(() => compressFiles(path.join(this.#tenants, tenant, ASSETS), list, (bytes) => this.#take(tenant, bytes)))
      // The quota is used up, or the tenant is gone: they are sent as they are.
      .catch(() => undefined);
  }

  /** Removes what no version needs. @param used by the versions */
  async collect(tenant: string, used: Iterable<AssetSettings>): Promise<void> {
    const kept = new Set<string>();
    const settings = [...used];
    const lists = new Set(settings.map(({ list }) => list));
    const tables = new Set(settings.map(tableName));
    const folder = this.#folder(tenant, 'lists');
    for (const name of await readdir(folder).catch(() => [])) {
      if (lists.has(name)) for (const hash of Object.values((await this.list(tenant, name)).files)) kept.add(hash);
      else await removeOld(path.join(folder, name), UNNAMED_LIST_MS);
    }
    for (const name of await readdir(this.#folder(tenant, 'files')).catch(() => []))
      if (!kept.has(name)) await removeOld(path.join(this.#folder(tenant, 'files'), name), UNNAMED_MS);
    for (const name of await readdir(this.#folder(tenant, 'tables')).catch(() => []))
      if (!tables.has(name)) await removeOld(path.join(this.#folder(tenant, 'tables'), name), UNNAMED_LIST_MS);
    for (const name of await readdir(this.#folder(tenant, 'coded')).catch(() => [])) {
      // As long as the file: it may be named again, and would be compressed again.
      const file = path.join(this.#folder(tenant, 'files'), name.slice(0, name.indexOf('.')));
      if (!(await stat(file).catch(() => undefined)))
        await removeOld(path.join(this.#folder(tenant, 'coded'), name), UNNAMED_LIST_MS);
    }
    this.#sizes.delete(tenant);
  }

  /** What the tenant keeps, bytes. */
  async usage(tenant: string): Promise<{ assetBytes: number }> {
    return { assetBytes: (await this.#size(tenant)).bytes };
  }

  async purge(tenant: string): Promise<void> {
    this.#sizes.delete(tenant);
    await rm(path.join(this.#tenants, tenant, ASSETS), { recursive: true, force: true });
  }

  #folder(tenant: string, kind: Kind): string {
    return path.join(this.#tenants, tenant, ASSETS, kind);
  }

  /** What has its own name is whole: a kill leaves a draft. */
  #draft(tenant: string, kind: Kind): string {
    return path.join(this.#folder(tenant, kind), `.new-${randomUUID()}`);
  }

  #names(tenant: string): Promise<string[]> {
    return readdir(this.#folder(tenant, 'files')).catch(() => []);
  }

  #size(tenant: string): Promise<{ bytes: number }> {
    const known = this.#sizes.get(tenant);
    if (known) return known;
    const counting = this.#count(tenant);
    this.#sizes.set(tenant, counting);
    return counting;
  }

  /**
   * Counts what is about to be written.
   * @returns takes it back
   * @throws Problem `quota_exceeded`
   */
  async #take(tenant: string, length: number): Promise<() => void> {
    const most = await this.#maxBytes(tenant);
    const size = await this.#size(tenant);
    const taken = onDisk(length);
    if (size.bytes + taken > most) {
      throw new Problem(
        'quota_exceeded',
        `Static files of a deployment take at most ${most} bytes, those of kept versions and of the last hour included, each at least ${BLOCK}.`,
      );
    }
    size.bytes += taken;
    return () => {
      size.bytes -= taken;
    };
  }

  async #count(tenant: string): Promise<{ bytes: number }> {
    let bytes = 0;
    for (const kind of KINDS) {
      const folder = this.#folder(tenant, kind);
      for (const name of await readdir(folder).catch(() => []))
        bytes += onDisk((await stat(path.join(folder, name)).catch(() => undefined))?.size ?? 0);
    }
    return { bytes };
  }
}

/** However small files are, their number is bounded by the quota. */
function onDisk(size: number): number {
  return Math.max(1, Math.ceil(size / BLOCK)) * BLOCK;
}

/** The folder of the instances may be on another disk. */
async function linkOrCopy(from: string, to: string): Promise<void> {
  await link(from, to).catch((error: NodeJS.ErrnoException) => {
    if (!['EXDEV', 'EPERM', 'EMLINK'].includes(error.code ?? '')) throw error;
    return copyFile(from, to, constants.COPYFILE_FICLONE);
  });
}

async function removeOld(file: string, ms: number): Promise<void> {
  const found = await stat(file).catch(() => undefined);
  if (found && Date.now() - found.mtimeMs > ms) await rm(file, { force: true });
}
