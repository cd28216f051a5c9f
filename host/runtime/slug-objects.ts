/**
 * The Durable Objects of one slug, queues and workflows among them. They are in one process at a time: while one instance
 * replaces another, the old one ends before the new one opens their folder. Those of a preview end with its instance.
 */
import { rmSync } from 'node:fs';
import { hasPoints, type Objects, objectsOf } from '../bindings/durable-objects/classes.ts';
import { objectsFolder, passingFolder, removePassed } from '../bindings/durable-objects/folder.ts';
import type { InstanceSpec, StorageQuotas, TenantId } from '../shared/contracts.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import type { MemberPart } from './cluster-member.ts';
import type { ExitReason } from './exit-reason.ts';
import type { InstanceProcess } from './instance-process.ts';
import { ObjectsDisk } from './objects-disk.ts';
import type { PrewarmedSandboxOptions } from './prewarmed-sandbox.ts';

/**
 * What a database of D1 takes of the cluster's bucket and of the disk, as many times as it is large: a snapshot, the log
 * since then, and the next snapshot. Of one of 49 MB that was written all the time there were at most 2.7 times and 5.7
 * times as much (workerd 1.20261117.1).
 */
const BUCKET_SHARE = 3;
const DISK_SHARE = 6;

export interface SlugObjectsOptions {
  slug: string;
  preview: string | undefined;
  tenantsFolder: string;
  storeQuotas: StorageQuotas;
  /** They are the cluster's: what is on the disk are copies, for each instance its own. Those of a preview never are. */
  clustered: boolean;
  /** They cannot be reached. */
  away(): boolean;
  /** The quota of the instance that was opened last is used up. @param detail one sentence for the owner */
  onExceeded(detail: string): void;
  /** The disk of that instance was full, and has room again. */
  onFreed(): void;
  /** An instance with objects is gone: one of them may have an alarm. */
  onAtRest(objects: { slug: string; tenant: TenantId; folder: string }): void;
}

/** What an instance has to be replaced with objects in it. */
export interface HandOver {
  /** Resolves when the old instance is gone. */
  end(): Promise<void>;
  start(spec: InstanceSpec): Promise<InstanceProcess>;
}

export class SlugObjects {
  readonly #options: SlugObjectsOptions;
  #disk: ObjectsDisk | undefined;

  constructor(options: SlugObjectsOptions) {
    this.#options = options;
  }

  /** Whether two instances may run at the same time. */
  mayOverlap(one: InstanceSpec, other: InstanceSpec): boolean {
    return this.#options.clustered || !(objectsOf(one.bindings) || objectsOf(other.bindings));
  }

  /**
   * The old instance ends first, and requests wait for the new one.
   * @throws Problem when that does not start; the old version is then started again
   */
  static async handOver(old: InstanceSpec, spec: InstanceSpec, { end, start }: HandOver): Promise<InstanceProcess> {
    await end();
    try {
      return await start(spec);
    } catch (error) {
      await start(old);
      throw error;
    }
  }

  /**
   * Prepares the disk for the next instance.
   * @param generation its number
   * @param leaving instances that have not ended
   * @returns undefined where it keeps nothing on a disk
   * @throws Problem quota_exceeded
   */
  async open(
    spec: InstanceSpec,
    uid: number | undefined,
    generation: number,
    leaving: Iterable<InstanceProcess>,
  ): Promise<PrewarmedSandboxOptions['objects']> {
    const classes = this.#kept(spec.bindings);
    this.#disk = undefined;
    if (!classes || this.#options.away()) return undefined;
    const { clustered, preview, tenantsFolder } = this.#options;
    if (clustered || preview !== undefined) {
      await removePassed(tenantsFolder, [spec]);
      const folder = passingFolder(tenantsFolder, spec.tenant, generation);
      return await this.#openDisk(spec, classes, uid, folder);
    }
    // One that was killed may not be gone yet: never two processes on one folder.
    await Promise.all([...leaving].map((old) => objectsOf(old.spec.bindings) && old.ended));
    return await this.#openDisk(spec, classes, uid, objectsFolder(tenantsFolder, spec.tenant));
  }

  /** What it has in the cluster. */
  part({ bindings, limits }: InstanceSpec): MemberPart {
    const { databases = 0 } = this.#kept(bindings) ?? {};
    const ofD1 = databases - Number(hasPoints(bindings));
    return {
      quotaBytes: this.#quota(bindings, limits, BUCKET_SHARE),
      databaseBytes: Math.floor(this.#limit('sqlBytes', limits) / Math.max(1, ofD1)),
      points: { mostBytes: this.#limit('analyticsBytes', limits), days: this.#options.storeQuotas.analyticsDays ?? 0 },
    };
  }

  /** Whether the instance keeps anything outside its memory. */
  isKept({ bindings }: InstanceSpec): boolean {
    return this.#kept(bindings) !== undefined;
  }

  /** Looks at the disk. @param now ms of `performance.now()` @returns whether the instance did anything since the last look */
  sample(instance: InstanceProcess, now: number): boolean {
    if (!this.#disk) return false;
    const hasWorked = instance.hasWorked();
    this.#disk.sample(now, hasWorked);
    return hasWorked;
  }

  /** The instance is gone, for this reason. */
  ended({ spec: { tenant, bindings }, generation }: InstanceProcess, reason: ExitReason): void {
    const { slug, preview, tenantsFolder, clustered, onAtRest } = this.#options;
    if (clustered || preview !== undefined)
      rmSync(passingFolder(tenantsFolder, tenant, generation), { recursive: true, force: true });
    if (preview !== undefined || !objectsOf(bindings) || reason === 'replaced' || reason === 'shutdown') return;
    onAtRest({ slug, tenant, folder: objectsFolder(tenantsFolder, tenant) });
  }

  #kept(bindings: InstanceSpec['bindings']): Objects | undefined {
    return objectsOf(bindings, this.#options.clustered);
  }

  /** Bytes of all objects together, databases among them, which have limits of their own. @param share for those */
  #quota(bindings: InstanceSpec['bindings'], limits: InstanceSpec['limits'], share: number): number {
    const { databases = 0 } = this.#kept(bindings) ?? {};
    const points = databases > 0 && hasPoints(bindings);
    const ofDatabases = databases > Number(points) ? this.#limit('sqlBytes', limits) : 0;
    const ofPoints = points ? this.#limit('analyticsBytes', limits) : 0;
    return this.#limit('durableObjectBytes', limits) + share * (ofDatabases + ofPoints);
  }

  #limit(name: 'durableObjectBytes' | 'sqlBytes' | 'analyticsBytes', limits: InstanceSpec['limits']): number {
    return limitsOf('storage', limits)[name] ?? this.#options.storeQuotas[name] ?? 0;
  }

  async #openDisk(
    { bindings, limits }: InstanceSpec,
    classes: Objects,
    uid: number | undefined,
    folder: string,
  ): Promise<PrewarmedSandboxOptions['objects']> {
    const { clustered, onExceeded, onFreed } = this.#options;
    const disk = new ObjectsDisk({
      folder,
      quota: this.#quota(bindings, limits, DISK_SHARE),
      onExceeded: (detail) => {
        if (this.#disk === disk) onExceeded(detail);
      },
      onFreed: () => {
        if (this.#disk === disk) onFreed();
      },
    });
    this.#disk = disk;
    return { ...(await disk.open(classes, uid)), clustered };
  }
}
