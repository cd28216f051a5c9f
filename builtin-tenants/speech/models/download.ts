/**
 * Downloads one large file from a server that is not ours: goes on where an earlier try broke off, checks the sum, and
 * takes no more than it expects. By proxy where the environment names one (HTTPS_PROXY, NO_PROXY).
 */
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readFile, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EnvHttpProxyAgent, fetch, type Response } from 'undici';
import type { Checksum } from './catalogue.ts';

/** No model is larger. */
const MOST_BYTES = 16_000_000_000;
/** Left free on the disk, for the host. */
const RESERVE_BYTES = 1_000_000_000;
/** A server that sends nothing for this long has gone. */
const IDLE_MS = 30_000;
/** Tries in a row without a single byte; each that got further counts anew. */
const TRIES = 4;
const PAUSE_MS = 1_000;
/** How often progress is told, ms. */
const TELL_MS = 500;

export interface Download {
  url: string;
  /** The file is kept here, by the name that its address has, until it is whole and unpacked. */
  folder: string;
  checksum?: Checksum | undefined;
  signal: AbortSignal;
  /** @param total bytes, where the server says it */
  progress(bytes: number, total: number | undefined): void;
  /** A try that broke off, and goes on. */
  notice(text: string): void;
  idleMs?: number;
  pauseMs?: number;
}

/** A refusal that no further try would change. */
export class DownloadRefused extends Error {}

/**
 * @returns the file, whole, and its SHA-256
 * @throws DownloadRefused with what to do; Error of the network, when it broke off too often: the next call goes on
 */
export async function download(task: Download): Promise<{ file: string; sha256: string }> {
  const file = join(task.folder, basename(new URL(task.url).pathname));
  const part = `${file}.part`;
  const agent = new EnvHttpProxyAgent({ headersTimeout: task.idleMs ?? IDLE_MS, bodyTimeout: task.idleMs ?? IDLE_MS });
  try {
    for (let tries = 0; ; ) {
      const before = await sizeOf(part);
      try {
        await fetchRest(task, agent, part, before);
        break;
      } catch (error) {
        if (task.signal.aborted) throw new Error('Stopped. The same command goes on where it was.');
        if (error instanceof DownloadRefused) throw error;
        tries = (await sizeOf(part)) > before ? 1 : tries + 1;
        const reason = reasonOf(error);
        if (tries === TRIES) throw new Error(`${task.url}: ${reason}. The same command goes on where it was.`);
        task.notice(`the download broke off (${reason}); it goes on`);
        await delay((task.pauseMs ?? PAUSE_MS) * tries, undefined, { signal: task.signal }).catch(() => undefined);
      }
    }
  } finally {
    await agent.destroy();
  }
  const sums = await sumsOf(part, task.checksum?.algorithm ?? 'sha256');
  if (task.checksum && sums.asked !== task.checksum.value) {
    await forget(part);
    throw new DownloadRefused(
      `${task.url} has the ${task.checksum.algorithm} ${sums.asked} instead of ${task.checksum.value}: it is not the file that was published. It was removed.`,
    );
  }
  return { file: part, sha256: sums.sha256 };
}

/** For when the file is not needed any more. */
export async function forget(part: string): Promise<void> {
  await Promise.all([rm(part, { force: true }), rm(validatorOf(part), { force: true })]);
}

/** One request, for what is not there yet. Returns when the file is whole. */
async function fetchRest(task: Download, agent: EnvHttpProxyAgent, part: string, have: number): Promise<void> {
  const validator = have === 0 ? '' : await readFile(validatorOf(part), 'utf8').catch(() => '');
  // Without it the rest might be that of another file.
  const goesOn = have > 0 && validator !== '';
  const response = await fetch(task.url, {
    dispatcher: agent,
    signal: task.signal,
    headers: {
      'user-agent': 'turnpike',
      'accept-encoding': 'identity',
      ...(goesOn ? { range: `bytes=${have}-`, 'if-range': validator } : {}),
    },
  });
  try {
    refuseUnsafe(task.url, response);
    const from = goesOn ? startOf(response, have) : 0;
    if (from === undefined) return;
    if (response.status !== 200 && response.status !== 206) {
      const text = `${task.url} answers ${response.status}`;
      if (response.status >= 500 || response.status === 429) throw new Error(text);
      throw new DownloadRefused(`${text}. Is the address right? --from takes a file that you downloaded elsewhere.`);
    }
    await receive(task, response, part, from);
  } finally {
    await response.body?.cancel().catch(() => undefined);
  }
}

/** Where the answer's bytes belong; undefined: nothing is missing. @throws DownloadRefused for a range that was not asked for */
function startOf(response: Response, have: number): number | undefined {
  if (response.status === 416 && response.headers.get('content-range') === `bytes */${have}`) return undefined;
  if (response.status !== 206) return 0;
  const range = /^bytes (\d+)-\d+\/(?:\d+|\*)$/.exec(response.headers.get('content-range') ?? '');
  if (range === null || Number(range[1]) !== have)
    throw new DownloadRefused('The server sends another part than it was asked for.');
  return have;
}

/** A redirect must not lead from TLS to a server in clear. */
function refuseUnsafe(url: string, response: Response): void {
  if (url.startsWith('https:') && !response.url.startsWith('https:'))
    throw new DownloadRefused(`${url} leads to ${new URL(response.url).origin}, without TLS.`);
}

async function receive(task: Download, response: Response, part: string, from: number): Promise<void> {
  const length = response.headers.get('content-length');
  const total = length === null ? undefined : from + Number(length);
  if ((total ?? 0) > MOST_BYTES) throw new DownloadRefused(`${task.url} has ${total} bytes: that is no model.`);
  await refuseFullDisk(dirname(part), (total ?? 0) - from);
  if (from === 0) await writeFile(validatorOf(part), validatorFrom(response));
  const file = await open(part, from === 0 ? 'w' : 'r+');
  let at = from;
  let told = 0;
  try {
    for await (const piece of response.body ?? []) {
      if (at + piece.length > (total ?? MOST_BYTES)) throw new DownloadRefused(`${task.url} sends more than it says.`);
      await file.write(piece as Uint8Array, 0, (piece as Uint8Array).length, at);
      at += (piece as Uint8Array).length;
      if (performance.now() - told < TELL_MS) continue;
      told = performance.now();
      task.progress(at, total);
    }
    await file.sync();
  } finally {
    await file.close();
  }
  if (total !== undefined && at !== total) throw new Error(`${total - at} bytes are missing`);
  task.progress(at, total);
}

async function refuseFullDisk(folder: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  const free = Number(bavail) * Number(bsize);
  if (free - bytes < RESERVE_BYTES) {
    throw new DownloadRefused(
      `The disk has ${Math.floor(free / 1e6)} MB free, and the download needs ${Math.ceil(bytes / 1e6)} MB; 1,000 MB stay free for the host.`,
    );
  }
}

/** A strong ETag, else the date: by it the server knows whether the file is the same (RFC 9110, 13.1.5). */
function validatorFrom({ headers }: Response): string {
  const etag = headers.get('etag') ?? '';
  return etag.startsWith('"') ? etag : (headers.get('last-modified') ?? '');
}

function validatorOf(part: string): string {
  return `${part}.validator`;
}

async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ size }) => size,
    () => 0,
  );
}

async function sumsOf(file: string, algorithm: Checksum['algorithm']): Promise<{ sha256: string; asked: string }> {
  const hashes: Record<string, Hash> = { sha256: createHash('sha256'), [algorithm]: createHash(algorithm) };
  for await (const piece of createReadStream(file)) for (const hash of Object.values(hashes)) hash.update(piece);
  const sums = Object.fromEntries(Object.entries(hashes).map(([name, hash]) => [name, hash.digest('hex')]));
  return { sha256: sums.sha256 ?? '', asked: sums[algorithm] ?? '' };
}

function reasonOf(error: unknown): string {
  const { cause, message } = error as Error & { cause?: Error };
  return cause?.message || message;
}
