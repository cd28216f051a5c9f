/**
 * The disk of one instance's Durable Objects, kept within the tenant's quota. The kernel bounds each file, and this
 * watches all of them together: who has used up the quota is started again with files that hardly grow, so that objects
 * and rows can be read and removed, and once more when there is room; who goes on anyhow is not started.
 */
import type { Objects } from '../bindings/durable-objects/classes.ts';
import { folderSize, logBytes, prepareFolder } from '../bindings/durable-objects/folder.ts';
import { Problem } from '../shared/problem.ts';
import type { PrewarmedSandboxOptions } from './prewarmed-sandbox.ts';

export interface ObjectsDiskOptions {
  folder: string;
  /** Bytes. */
  quota: number;
  /** Its quota is used up. @param detail one sentence for the owner */
  onExceeded(detail: string): void;
  /** It was full, and has room again. */
  onFreed(): void;
}

/** By how much a file of a full disk may grow beyond what it takes to change all of the largest, bytes: SQLite's index of a log takes half of it. */
const FILE_SPARE_BYTES = 65_536;
/** As many times the quota is far beyond it: what was left for logs was used for something else. */
const CROWDED = 2;
/** By how much a full disk may grow until it is started again: a share of the quota, and at least as much as SQLite's log of one object. */
const SPARE = 0.1;
const LEAST_SPARE_BYTES = 8 * 1_048_576;
/** A full disk counts as usable again when this share of the quota is free. With less it would soon be full again. */
const ROOM = 0.05;
/** As many times the quota nobody starts with. */
const MOST = 4;
/** How often the folder is looked at while the instance works, ms; more seldom by each file: ten times what it takes to look at one. */
const LOOK_MS = 200;
const LOOK_MS_PER_FILE = 0.05;

export class ObjectsDisk {
  readonly #options: ObjectsDiskOptions;
  #limit: number;
  #full = false;
  #nextLook = 0;
  #looking = false;
  /** The instance has done something since the last look began. */
  #isStale = false;

  constructor(options: ObjectsDiskOptions) {
    this.#options = options;
    this.#limit = options.quota;
  }

  /**
   * Prepares it for a sandbox. Only while no process has it open.
   * @throws Problem quota_exceeded
   */
  async open(classes: Objects, uid: number | undefined): Promise<NonNullable<PrewarmedSandboxOptions['objects']>> {
    const { folder, quota } = this.#options;
    await prepareFolder(folder, classes, uid);
    const { bytes } = await folderSize(folder);
    if (bytes > quota * MOST) {
      throw new Problem(
        'quota_exceeded',
        `Its Durable Objects hold ${megabytes(bytes)} MB; ${megabytes(quota)} MB are allowed. Remove classes of them with "deleted": true, or ask the operator for a larger quota (storage.durableObjectBytes).`,
      );
    }
    const full = bytes > quota;
    this.#full = full;
    if (!full) {
      this.#limit = quota;
      return { folder, fileBytes: quota };
    }
    // SQLite removes rows by writing: into its log, and later from the log into the database. Nothing else may grow.
    const { logs, largest } = await logBytes(folder);
    const spare = Math.max(quota * SPARE, LEAST_SPARE_BYTES);
    this.#limit = bytes + spare + (bytes > quota * CROWDED ? 0 : logs);
    return { folder, fileBytes: FILE_SPARE_BYTES + largest };
  }

  /** @param now ms of `performance.now()` @param hasWorked whether the instance did anything since this was last called */
  sample(now: number, hasWorked: boolean): void {
    this.#isStale ||= hasWorked;
    if (!this.#isStale || this.#looking || now < this.#nextLook) return;
    this.#isStale = false;
    this.#looking = true;
    void this.#look(now).finally(() => {
      this.#looking = false;
    });
  }

  async #look(now: number): Promise<void> {
    const { bytes, files } = await folderSize(this.#options.folder);
    this.#nextLook = now + Math.max(LOOK_MS, files * LOOK_MS_PER_FILE);
    const { quota, onFreed } = this.#options;
    if (this.#full && bytes <= quota * (1 - ROOM)) {
      this.#full = false;
      onFreed();
    }
    if (bytes <= this.#limit) return;
    this.#options.onExceeded(
      `Its Durable Objects hold ${megabytes(bytes)} MB; ${megabytes(this.#options.quota)} MB are allowed. It can read them and remove some, but add hardly anything.`,
    );
  }
}

function megabytes(bytes: number): number {
  return Math.ceil(bytes / 1_048_576);
}
