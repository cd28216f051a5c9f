/**
 * Keeps a cell or two ready for the next cold start. One that waits costs about 5 MB; a cold start through it takes less
 * than a bare workerd's own, since what is left to do is to read the configuration.
 */
import { rmSync } from 'node:fs';
import path from 'node:path';
import type { Logger } from 'pino';
import type { Sandbox } from '../sandbox/confinement.ts';
import { type Cell, type CellOptions, cellFolders, startCell } from './cell.ts';

export interface StandbyOptions {
  sandbox: Sandbox;
  /** Cells make folders named by a number in it. */
  folder: string;
  /** Cells that wait at most. */
  count: number;
  cgroups?: CellOptions['cgroups'];
  log: Logger;
}

/** New cells are made once no start was asked for this long, ms: a start should have the machine for itself. */
const QUIET_MS = 150;

export class Standby {
  readonly #options: StandbyOptions;
  readonly #ready: Cell[] = [];
  #number = 0;
  #timer: NodeJS.Timeout | undefined;
  #filling = false;
  #closed = false;

  constructor(options: StandbyOptions) {
    this.#options = options;
    this.#fillLater();
  }

  /** A cell that nobody has used: a waiting one, or a new one. Its folder is `folderOf(cell)`. */
  async take(): Promise<Cell> {
    this.#fillLater();
    for (;;) {
      const cell = this.#ready.pop();
      if (!cell) return this.#start();
      if (cell.process.pid() !== undefined) return cell;
      this.#discard(cell);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await Promise.all(this.#ready.splice(0).map((cell) => this.#discard(cell)));
  }

  #start(): Promise<Cell> {
    const { sandbox, folder, cgroups } = this.#options;
    return startCell({ sandbox, cgroups, ...cellFolders(path.join(folder, (this.#number++).toString(36))) });
  }

  #fillLater(): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.#fill(), QUIET_MS).unref();
  }

  async #fill(): Promise<void> {
    if (this.#filling) return;
    this.#filling = true;
    try {
      while (this.#ready.length < this.#options.count && !this.#closed) {
        const cell = await this.#start();
        if (this.#closed) await this.#discard(cell);
        else this.#ready.push(cell);
        void cell.process.exited.then(() => this.#forget(cell));
      }
    } catch (error) {
      this.#options.log.warn({ err: error }, 'no cell could be made ready');
    } finally {
      this.#filling = false;
    }
  }

  /** One that died while it waited. */
  #forget(cell: Cell): void {
    const at = this.#ready.indexOf(cell);
    if (at < 0) return;
    this.#ready.splice(at, 1);
    rmSync(folderOf(cell), { recursive: true, force: true });
    this.#fillLater();
  }

  async #discard(cell: Cell): Promise<void> {
    cell.process.kill();
    await cell.process.ended;
    rmSync(folderOf(cell), { recursive: true, force: true });
  }
}

/** The folder that holds all of a standing cell's. */
export function folderOf(cell: Cell): string {
  return path.dirname(cell.servicesFolder);
}
