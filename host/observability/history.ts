/**
 * What the host did in each minute of the last 30 days: one file of fixed size with a record for each minute, in which
 * the newest takes the place of the one 30 days before it. A record carries its minute and a checksum, so what a crash
 * cut off, or an older version wrote, counts as not there.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import type { TenantId } from '../shared/contracts.ts';
import { Mutex } from '../shared/mutex.ts';

export const MINUTE_MS = 60_000;
export const KEPT_MINUTES = 30 * 24 * 60;

/** Upper bounds of the durations that edges count, ms; a last class has none. */
export const LATENCY_BOUNDS = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 60_000];
export const LATENCY_CLASSES = LATENCY_BOUNDS.length + 1;

/** Whose CPU and memory is told apart. */
export const PROCESS_GROUPS = ['supervisor', 'edge', 'storage', 'egress', 'instances'] as const;
export type ProcessGroup = (typeof PROCESS_GROUPS)[number];

/** Added up over time. Money in micro-USD, CPU in ms. */
export const COUNTERS = [
  'requests',
  'clientErrors',
  'serverErrors',
  'unpaid',
  'payments',
  'charged',
  'earned',
] as const;
/** As they were last. Bytes. */
export const GAUGES = ['diskFree', 'diskTotal', 'instances', 'deployments'] as const;

export interface Minute extends Record<(typeof COUNTERS)[number] | (typeof GAUGES)[number], number> {
  /** Requests by duration: as many numbers as `LATENCY_BOUNDS`, and one more. */
  latency: number[];
  cpuMs: Record<ProcessGroup, number>;
  memory: Record<ProcessGroup, number>;
  /** The busiest tenants, busiest first; no more than `BUSIEST`. */
  busiest: Traffic[];
}

export interface Traffic {
  tenant: TenantId;
  requests: number;
  errors: number;
}

export const BUSIEST = 8;
const ID_BYTES = 10;
const TRAFFIC_BYTES = ID_BYTES + 8;
const NUMBERS = 1 + COUNTERS.length + GAUGES.length + LATENCY_CLASSES + 2 * PROCESS_GROUPS.length;
const RECORD_BYTES = 512;
const CHECKSUM_AT = RECORD_BYTES - 4;
/** Of the record's layout: another number makes all older records unreadable. */
const LAYOUT = 1;
/** Minutes that are read at once: half a day. */
const CHUNK = 720;

/** Written out: 43,200 of them are made for a chart of 30 days. */
export function emptyMinute(): Minute {
  return {
    requests: 0,
    clientErrors: 0,
    serverErrors: 0,
    unpaid: 0,
    payments: 0,
    charged: 0,
    earned: 0,
    diskFree: 0,
    diskTotal: 0,
    instances: 0,
    deployments: 0,
    latency: new Array(LATENCY_CLASSES).fill(0),
    cpuMs: { supervisor: 0, edge: 0, storage: 0, egress: 0, instances: 0 },
    memory: { supervisor: 0, edge: 0, storage: 0, egress: 0, instances: 0 },
    busiest: [],
  };
}

/** What was counted is added up; of the rest, the later one counts. */
export function addMinute(sum: Minute, later: Minute): void {
  for (const name of COUNTERS) sum[name] += later[name];
  for (const name of GAUGES) sum[name] = later[name];
  for (let index = 0; index < LATENCY_CLASSES; index++)
    sum.latency[index] = (sum.latency[index] ?? 0) + (later.latency[index] ?? 0);
  for (const name of PROCESS_GROUPS) {
    sum.cpuMs[name] += later.cpuMs[name];
    sum.memory[name] = later.memory[name];
  }
}

/** Each tenant once, the busiest first. */
export function busiestOf(traffic: Iterable<Traffic>, most = BUSIEST): Traffic[] {
  const sums = new Map<TenantId, Traffic>();
  for (const { tenant, requests, errors } of traffic) {
    const sum = sums.get(tenant);
    if (sum) {
      sum.requests += requests;
      sum.errors += errors;
    } else sums.set(tenant, { tenant, requests, errors });
  }
  return [...sums.values()].sort((a, b) => b.requests - a.requests || (a.tenant < b.tenant ? -1 : 1)).slice(0, most);
}

/**
 * The duration below which a share of requests ended, ms, taken to be spread evenly within a class; undefined without
 * requests.
 */
export function quantile(latency: readonly number[], share: number): number | undefined {
  const total = latency.reduce((sum, count) => sum + count, 0);
  if (total === 0) return undefined;
  let left = share * total;
  for (const [index, count] of latency.entries()) {
    if (left > count) {
      left -= count;
      continue;
    }
    const from = LATENCY_BOUNDS[index - 1] ?? 0;
    const to = LATENCY_BOUNDS[index] ?? from;
    return count === 0 ? from : from + (to - from) * (left / count);
  }
  return LATENCY_BOUNDS.at(-1);
}

export class History {
  readonly #file: FileHandle;
  readonly #turns = new Mutex();

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  /** @param path of the file, which is made where there is none */
  static async open(path: string): Promise<History> {
    const file = await open(path, 'a+', 0o600).then(async (made) => {
      await made.close();
      return open(path, 'r+');
    });
    // A longer one is of another layout.
    if ((await file.stat()).size > KEPT_MINUTES * RECORD_BYTES) await file.truncate(0);
    return new History(file);
  }

  /** Adds what happened since the last call to what is known of that minute. @param at ms since the epoch */
  async add(at: number, sample: Minute): Promise<void> {
    const minute = Math.floor(at / MINUTE_MS);
    await this.#turns.run(async () => {
      const record = Buffer.alloc(RECORD_BYTES);
      await this.#file.read(record, 0, RECORD_BYTES, slot(minute) * RECORD_BYTES);
      const sum = decoded(record, minute) ?? emptyMinute();
      addMinute(sum, sample);
      sum.busiest = busiestOf([...sum.busiest, ...sample.busiest]);
      await this.#file.write(encoded(minute, sum), 0, RECORD_BYTES, slot(minute) * RECORD_BYTES);
    });
  }

  /**
   * What is kept of the minutes of a time, oldest first, without those of which nothing is known.
   * @param from, to ms since the epoch; `to` is not included
   */
  async *read(from: number, to: number): AsyncGenerator<{ at: number; minute: Minute }> {
    const end = Math.ceil(to / MINUTE_MS);
    const chunk = Buffer.alloc(CHUNK * RECORD_BYTES);
    for (let first = Math.max(Math.floor(from / MINUTE_MS), end - KEPT_MINUTES); first < end; ) {
      // The file ends where the ring begins anew.
      const count = Math.min(CHUNK, end - first, KEPT_MINUTES - slot(first));
      const { bytesRead } = await this.#file.read(chunk, 0, count * RECORD_BYTES, slot(first) * RECORD_BYTES);
      for (let index = 0; index < Math.floor(bytesRead / RECORD_BYTES); index++) {
        const record = chunk.subarray(index * RECORD_BYTES, (index + 1) * RECORD_BYTES);
        const minute = decoded(record, first + index);
        if (minute) yield { at: (first + index) * MINUTE_MS, minute };
      }
      first += count;
    }
  }

  async close(): Promise<void> {
    await this.#turns.run(() => this.#file.close());
  }
}

function slot(minute: number): number {
  return ((minute % KEPT_MINUTES) + KEPT_MINUTES) % KEPT_MINUTES;
}

function encoded(minute: number, sample: Minute): Buffer {
  const record = Buffer.alloc(RECORD_BYTES);
  const numbers = [
    minute,
    ...COUNTERS.map((name) => sample[name]),
    ...GAUGES.map((name) => sample[name]),
    ...sample.latency,
    ...PROCESS_GROUPS.map((name) => sample.cpuMs[name]),
    ...PROCESS_GROUPS.map((name) => sample.memory[name]),
  ];
  for (const [index, value] of numbers.entries()) record.writeDoubleLE(value, index * 8);
  let at = NUMBERS * 8;
  for (const { tenant, requests, errors } of sample.busiest.slice(0, BUSIEST)) {
    record.write(tenant.slice(1), at, ID_BYTES, 'hex');
    record.writeUInt32LE(Math.min(requests, 0xffff_ffff), at + ID_BYTES);
    record.writeUInt32LE(Math.min(errors, 0xffff_ffff), at + ID_BYTES + 4);
    at += TRAFFIC_BYTES;
  }
  record.writeUInt32LE(crc32(record.subarray(0, CHECKSUM_AT), LAYOUT), CHECKSUM_AT);
  return record;
}

/** @returns undefined where the record is not that of the minute */
function decoded(record: Buffer, minute: number): Minute | undefined {
  if (record.readDoubleLE(0) !== minute || minute === 0) return undefined;
  if (record.readUInt32LE(CHECKSUM_AT) !== crc32(record.subarray(0, CHECKSUM_AT), LAYOUT)) return undefined;
  const sample = emptyMinute();
  let index = 1;
  const next = () => record.readDoubleLE(index++ * 8);
  for (const name of COUNTERS) sample[name] = next();
  for (const name of GAUGES) sample[name] = next();
  for (let latency = 0; latency < LATENCY_CLASSES; latency++) sample.latency[latency] = next();
  for (const name of PROCESS_GROUPS) sample.cpuMs[name] = next();
  for (const name of PROCESS_GROUPS) sample.memory[name] = next();
  for (let at = NUMBERS * 8, count = 0; count < BUSIEST; at += TRAFFIC_BYTES, count++) {
    const requests = record.readUInt32LE(at + ID_BYTES);
    if (requests === 0) break;
    const errors = record.readUInt32LE(at + ID_BYTES + 4);
    sample.busiest.push({ tenant: `t${record.toString('hex', at, at + ID_BYTES)}`, requests, errors });
  }
  return sample;
}
