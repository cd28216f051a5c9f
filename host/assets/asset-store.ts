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
import { trimCopies } from '../shared/local-copies.ts';
import { Problem } from '../shared/problem.ts';
import { type AssetList, MAX_FILE_BYTES } from './asset-list.ts';
import { compressFiles } from './coded-files.ts';
import { plainFiles, tableName } from './plain-files.ts';
import type { SharedAssets } from './shared-assets.ts';

const ASSETS = 'assets';
/** What was sent and is in no list goes after this long, ms: an update may be about to name it. */
const UNNAMED_MS = 3_600_000;
/** The same for lists, which are named within the update that sends them. */
const UNNAMED_LIST_MS = 10 * 60_000;
/** What the smallest file takes of the disk. */
const BLOCK = 4_096;
/** Links made at the same time. */
const AT_ONCE = 64;
/** Files that are fetched for one instance at the same time: others have connections to the S3, too. */
const FETCHED_AT_ONCE = 8;
/** Of several nodes: how long what a tenant keeps is not counted again, ms. */
const COUNTED_MS = 10_000;
/** Of all tenants, where several nodes have the files. */
const COPIES_BYTES = 8 * 1024 ** 3;
/** Folders of a tenant's static files. */
const KINDS = ['files', 'lists', 'tables', 'coded'] as const;
type Kind = (typeof KINDS)[number];

export class AssetStore {
  readonly #tenants: string;
  readonly #maxBytes: (tenant: string) => Promise<number>;
  /** What a tenant keeps, bytes; counted when it is first asked for. */
  readonly #sizes = new Map<string, Promise<{ bytes: number; at: number }>>();
  readonly #shared: SharedAssets | undefined;
  /** Tables that are being made, one after the other. */
  #making: Promise<unknown> = Promise.resolve();
  /** Files that are being compressed, likewise. */
  #compressing: Promise<unknown> = Promise.resolve();

  /**
   * @param maxBytes of one tenant's files, all versions together
   * @param shared where several nodes have them: what is here is a copy
   */
  constructor(tenantsFolder: string, maxBytes: (tenant: string) => Promise<number>, shared?: SharedAssets) {
    this.#tenants = tenantsFolder;
    this.#maxBytes = maxBytes;
    this.#shared = shared;
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
    if (!this.#shared && (await isThere(target))) return void (await body.cancel());
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
      await this.#shared?.put(tenant, 'files', hash, draft);
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
    const text = JSON.stringify(list);
    const digest = createHash('sha256').update(text).digest('hex');
    // First: from then on other nodes do not remove what it names.
    await this.#shared?.putText(tenant, 'lists', digest, text);
    const missing = await this.missing(tenant, Object.values(list.files));
    if (missing.length > 0) {
      throw new Problem(
        'conflict',
        `${missing.length} of the files were not sent, such as ${missing[0]}. Send them: PUT /_admin/<slug>/assets/<sha256>.`,
      );
    }
    const file = path.join(this.#folder(tenant, 'lists'), digest);
    if (!(await isThere(file))) {
      const giveBack = await this.#take(tenant, Buffer.byteLength(text));
      try {
        await this.#keepText(tenant, 'lists', digest, text);
      } catch (error) {
        giveBack();
        throw error;
      }
    }
    // In use from now on, though no version names it yet.
    const now = new Date();
    await utimes(file, now, now);
    await Promise.all([this.#folder(tenant, 'files'), this.#folder(tenant, 'lists')].map(syncIfThere));
    return digest;
  }

  /** @throws Problem `start_failed` where it is not there */
  async list(tenant: string, digest: string): Promise<AssetList> {
    try {
      const file = path.join(this.#folder(tenant, 'lists'), digest);
      const text = await readFile(file, 'utf8').catch(async (error) => {
        const shared = await this.#shared?.text(tenant, 'lists', digest).catch((cause) => {
          throw new Problem('start_failed', 'The static files of this version could not be fetched; try again.', {
            cause,
          });
        });
        if (shared === undefined) throw error;
        await this.#keepText(tenant, 'lists', digest, shared);
        return shared;
      });
      return JSON.parse(text) as AssetList;
    } catch (error) {
      if (error instanceof Problem) throw error;
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
        await this.#fetch(tenant, hash);
        // A backup that came back has files of the host's user alone.
        await chmod(file, 0o644);
        await linkOrCopy(file, path.join(to, name));
      }
    };
    await Promise.all(Array.from({ length: this.#shared ? FETCHED_AT_ONCE : AT_ONCE }, next));
  }

  /** Where edges find the files of a deployment, as soon as `prepare` was done. */
  route(tenant: string, settings: AssetSettings): RouteFiles {
    return { folder: path.join(this.#tenants, tenant, ASSETS), table: tableName(settings) };
  }

  /** Makes what edges serve the files from. What can be compressed is compressed some time later. */
  async prepare(tenant: string, settings: AssetSettings): Promise<void> {
    // What is slow to come holds up nobody else's.
    if (this.#shared) await this.list(tenant, settings.list);
    const prepared = this.#making.then(() => this.#prepare(tenant, settings));
    this.#making = prepared.catch(() => undefined);
    await prepared;
  }

  async #prepare(tenant: string, settings: AssetSettings): Promise<void> {
    const file = path.join(this.#folder(tenant, 'tables'), tableName(settings));
    const list = await this.list(tenant, settings.list);
    if (!(await isThere(file))) {
      const text = JSON.stringify(await plainFiles(settings, list));
      await this.#keepText(tenant, 'tables', path.basename(file), text);
      (await this.#size(tenant)).bytes += onDisk(Buffer.byteLength(text));
    }
    this.#compressing = this.#compressing
      .then(() => this.#fetchAll(tenant, list))
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
    // Most tenants have none, and an update waits for this.
    const [knownLists, knownFiles, knownTables, knownCoded] = await Promise.all(
      (['lists', 'files', 'tables', 'coded'] as const).map((kind) =>
        readdir(this.#folder(tenant, kind)).catch(() => []),
      ),
    );
    for (const name of knownLists ?? []) {
      if (lists.has(name)) for (const hash of Object.values((await this.list(tenant, name)).files)) kept.add(hash);
      else await removeOld(path.join(folder, name), UNNAMED_LIST_MS);
    }
    for (const name of knownFiles ?? [])
      if (!kept.has(name)) await removeOld(path.join(this.#folder(tenant, 'files'), name), UNNAMED_MS);
    for (const name of knownTables ?? [])
      if (!tables.has(name)) await removeOld(path.join(this.#folder(tenant, 'tables'), name), UNNAMED_LIST_MS);
    for (const name of knownCoded ?? []) {
      // As long as the file: it may be named again, and would be compressed again.
      const file = path.join(this.#folder(tenant, 'files'), name.slice(0, name.indexOf('.')));
      if (!(await stat(file).catch(() => undefined)))
        await removeOld(path.join(this.#folder(tenant, 'coded'), name), UNNAMED_LIST_MS);
    }
    await this.#shared?.collect(tenant, lists, { lists: UNNAMED_LIST_MS, files: UNNAMED_MS });
    this.#sizes.delete(tenant);
  }

  /**
   * Where several nodes have the files: removes copies of tenants that are gone, and those that were used longest ago.
   * @param isGone told by the tenant
   */
  async trim(isGone: (tenant: string) => Promise<boolean>, maxBytes = COPIES_BYTES): Promise<void> {
    if (!this.#shared) return;
    const folders: string[] = [];
    for (const tenant of await readdir(this.#tenants).catch(() => [])) {
      const assets = path.join(this.#tenants, tenant, ASSETS);
      if (!(await isThere(assets))) continue;
      if (await isGone(tenant)) await rm(assets, { recursive: true, force: true });
      else folders.push(path.join(assets, 'files'), path.join(assets, 'coded'));
    }
    await trimCopies(folders, maxBytes);
  }

  /** What the tenant keeps, bytes. */
  async usage(tenant: string): Promise<{ assetBytes: number }> {
    return { assetBytes: (await this.#size(tenant)).bytes };
  }

  async purge(tenant: string): Promise<void> {
    this.#sizes.delete(tenant);
    await this.#shared?.purge(tenant);
    await rm(path.join(this.#tenants, tenant, ASSETS), { recursive: true, force: true });
  }

  #folder(tenant: string, kind: Kind): string {
    return path.join(this.#tenants, tenant, ASSETS, kind);
  }

  /** What has its own name is whole: a kill leaves a draft. */
  #draft(tenant: string, kind: Kind): string {
    return path.join(this.#folder(tenant, kind), `.new-${randomUUID()}`);
  }

  /** Makes sure of a copy. @throws Problem `start_failed` where it is nowhere */
  async #fetch(tenant: string, hash: string): Promise<void> {
    const file = path.join(this.#folder(tenant, 'files'), hash);
    if (!this.#shared) return;
    const now = new Date();
    const isCopied = await utimes(file, now, now).then(
      () => true,
      () => false,
    );
    if (isCopied) return;
    const draft = this.#draft(tenant, 'files');
    try {
      await mkdir(path.dirname(draft), { recursive: true, mode: 0o700 });
      await this.#shared.fetch(tenant, hash, draft);
      await rename(draft, file);
    } catch (error) {
      await rm(draft, { force: true });
      throw new Problem('start_failed', 'A static file of this version could not be fetched; try again.', {
        cause: error,
      });
    }
  }

  /** Edges send what is on the disk: until then an instance does. */
  async #fetchAll(tenant: string, { files }: AssetList): Promise<void> {
    if (this.#shared) for (const hash of new Set(Object.values(files))) await this.#fetch(tenant, hash);
  }

  /** A file has its name only when it is whole. */
  async #keepText(tenant: string, kind: Kind, name: string, text: string): Promise<void> {
    const draft = this.#draft(tenant, kind);
    try {
      await writeDurably(draft, text);
      await rename(draft, path.join(this.#folder(tenant, kind), name));
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
  }

  #names(tenant: string): Promise<string[]> {
    if (this.#shared) return this.#shared.names(tenant, 'files');
    return readdir(this.#folder(tenant, 'files')).catch(() => []);
  }

  async #size(tenant: string): Promise<{ bytes: number }> {
    const known = await this.#sizes.get(tenant);
    if (known && !(this.#shared && performance.now() - known.at > COUNTED_MS)) return known;
    const counting = this.#count(tenant);
    this.#sizes.set(tenant, counting);
    counting.catch(() => this.#sizes.delete(tenant));
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

  async #count(tenant: string): Promise<{ bytes: number; at: number }> {
    const at = performance.now();
    // Tables and compressed forms are each node's own.
    let bytes = (await this.#shared?.sizes(tenant))?.reduce((sum, size) => sum + onDisk(size), 0) ?? 0;
    for (const kind of this.#shared ? [] : KINDS) {
      const folder = this.#folder(tenant, kind);
      for (const name of await readdir(folder).catch(() => []))
        bytes += onDisk((await stat(path.join(folder, name)).catch(() => undefined))?.size ?? 0);
    }
    return { bytes, at };
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

async function isThere(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  );
}

/** A node may have no copy of any file. */
async function syncIfThere(folder: string): Promise<void> {
  if (await isThere(folder)) await syncFile(folder);
}

async function removeOld(file: string, ms: number): Promise<void> {
  const found = await stat(file).catch(() => undefined);
  if (found && Date.now() - found.mtimeMs > ms) await rm(file, { force: true });
}
