/**
 * One host per data folder. The lock is an exclusive transaction on an empty libSQL file: the kernel lets go of it
 * when the process dies, however it dies, and it holds across network namespaces, which a socket would not.
 */
import { readFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import Database from 'libsql';
import { Problem } from '../shared/problem.ts';

/** What other programs may know of the running host; `<data>/host.json`. */
export interface RunningHost {
  pid: number;
  url: string;
  port: number;
  adminPort: number;
}

export class FolderLock {
  readonly #folder: string;
  readonly #database: InstanceType<typeof Database>;

  /**
   * @throws Problem conflict when another host runs on the folder
   * @throws Error of SQLite when the file cannot be made
   */
  constructor(folder: string) {
    this.#folder = folder;
    this.#database = new Database(path.join(folder, 'lock'));
    try {
      this.#database.exec('BEGIN EXCLUSIVE');
    } catch (error) {
      this.#database.close();
      if ((error as { code?: string }).code !== 'SQLITE_BUSY') throw error;
      const running = readRunningHost(folder);
      const who = running ? ` (process ${running.pid}, ${running.url})` : '';
      throw new Problem(
        'conflict',
        `Another host${who} runs on ${folder}. Stop it, or give this one its own --data folder.`,
        {
          cause: error,
        },
      );
    }
  }

  /** Tells other programs where the host is. They see all of it, or what was there before. */
  async announce(host: RunningHost): Promise<void> {
    const file = path.join(this.#folder, 'host.json');
    await writeFile(`${file}.new`, `${JSON.stringify(host, null, 2)}\n`);
    await rename(`${file}.new`, file);
  }

  release(): void {
    this.#database.close();
  }
}

/** The host that runs, or last ran, on a data folder. */
export function readRunningHost(folder: string): RunningHost | undefined {
  try {
    return JSON.parse(readFileSync(path.join(folder, 'host.json'), 'utf8')) as RunningHost;
  } catch {
    return undefined;
  }
}
