/**
 * Unpacks an archive of a model, which a stranger made: only plain files and folders below the target, no more and no
 * larger than a model has, and nothing outside.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { open, statfs } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { Unpack } from 'tar';

const MOST_FILES = 2_000;
const MOST_BYTES = 32_000_000_000;
const MOST_DEPTH = 8;
/** Left free on the disk, for the host. */
const RESERVE_BYTES = 1_000_000_000;
const BZIP2 = 'BZh';

/**
 * @param archive a tar, plain or packed by bzip2, gzip or zstd
 * @param target an empty folder
 * @throws Error that says what is wrong with the archive
 */
export async function unpack(archive: string, target: string, signal: AbortSignal): Promise<void> {
  const { bavail, bsize } = await statfs(target);
  const most = Math.max(0, Math.min(MOST_BYTES, Number(bavail) * Number(bsize) - RESERVE_BYTES));
  const unpacking = new GuardedUnpack(target, most);
  // Node knows no bzip2, and sherpa-onnx publishes nothing else.
  if ((await startOf(archive)) === BZIP2) await unpackBzip2(archive, unpacking, signal);
  else await unpacking.take(createReadStream(archive, { signal }));
}

class GuardedUnpack {
  readonly #tar: Unpack;
  #refusal: string | undefined;
  #failure: Error | undefined;
  #files = 0;
  #bytes = 0;

  constructor(target: string, most: number) {
    this.#tar = new Unpack({
      cwd: target,
      strict: true,
      preserveOwner: false,
      noMtime: true,
      maxDepth: MOST_DEPTH,
      filter: (path, entry) => {
        this.#refusal ??= this.#whyNot(path, 'type' in entry ? entry.type : 'link', entry.size ?? 0, most);
        return this.#refusal === undefined;
      },
    });
    this.#tar.on('error', (error: Error) => {
      this.#failure ??= error;
      // Whoever waits for it looks at the failure.
      this.#tar.emit('drain');
    });
  }

  /** @throws Error that says why the archive is refused */
  async take(source: AsyncIterable<Buffer>): Promise<void> {
    const closed = once(this.#tar, 'close').catch(() => undefined);
    for await (const piece of source) {
      if (!this.#tar.write(piece) && this.#failure === undefined && this.#refusal === undefined)
        await once(this.#tar, 'drain').catch(() => undefined);
      this.#check();
    }
    this.#tar.end();
    await Promise.race([closed, once(this.#tar, 'error').catch(() => undefined)]);
    this.#check();
    if (this.#files === 0) throw new Error('The archive is empty, or it is none. Nothing was installed.');
  }

  #check(): void {
    const reason = this.#refusal ?? this.#failure?.message;
    if (reason !== undefined) throw new Error(`The archive is refused: ${reason}. Nothing was installed.`);
  }

  #whyNot(path: string, type: string, size: number, most: number): string | undefined {
    this.#files += 1;
    this.#bytes += size;
    if (type !== 'File' && type !== 'OldFile' && type !== 'Directory') return `${path} is a ${type}, and no plain file`;
    if (path.startsWith('/') || path.split('/').includes('..')) return `${path} leads out of it`;
    if (this.#files > MOST_FILES) return `it holds more than ${MOST_FILES} files`;
    if (this.#bytes > most) return `it holds more than the ${Math.floor(most / 1e6)} MB that the disk has to spare`;
    return undefined;
  }
}

async function unpackBzip2(archive: string, unpacking: GuardedUnpack, signal: AbortSignal): Promise<void> {
  const program = spawn('bzip2', ['-dc'], { stdio: ['pipe', 'pipe', 'pipe'], env: { PATH: process.env.PATH }, signal });
  let said = '';
  program.stderr.on('data', (text: Buffer) => {
    said = (said + text.toString()).slice(0, 1_000);
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    program.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        error.code === 'ENOENT'
          ? new Error('The archive needs the program bzip2, which is missing: apt-get install bzip2')
          : error,
      ),
    );
    program.once('close', resolve);
  });
  // A program that ends early tells why by its own words, not by the broken pipe.
  const fed = pipeline(createReadStream(archive), program.stdin).catch(() => undefined);
  try {
    const [taken, code] = await Promise.allSettled([unpacking.take(program.stdout), ended]);
    if (code.status === 'rejected') throw code.reason;
    if (code.value !== 0 && said !== '')
      throw new Error(`The archive is broken: ${said.trim().split('\n')[0]}. Nothing was installed.`);
    if (taken.status === 'rejected') throw taken.reason;
  } finally {
    program.kill();
    await fed;
  }
}

async function startOf(file: string): Promise<string> {
  const opened = await open(file);
  try {
    const { buffer, bytesRead } = await opened.read(Buffer.alloc(BZIP2.length), 0, BZIP2.length, 0);
    return buffer.toString('latin1', 0, bytesRead);
  } finally {
    await opened.close();
  }
}
