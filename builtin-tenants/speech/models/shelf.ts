/**
 * The models of one host, in `<data>/speech-models`: a folder for each sherpa-onnx model, a file for each of
 * whisper.cpp, and `in-use`, which names the one that transcribes. Downloads wait in `.downloads`, what is being
 * unpacked in `.unfinished-*`: nothing has a name of its own before it is whole.
 */
import { readFileSync } from 'node:fs';
import { chown, lstat, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** The file that names the model in use. */
export const IN_USE = 'in-use';
const DOWNLOADS = '.downloads';
const UNFINISHED = '.unfinished-';
/** Names of models are names of files: nothing that leads elsewhere, and nothing hidden. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export class ModelShelf {
  readonly folder: string;

  constructor(dataFolder: string) {
    this.folder = join(dataFolder, 'speech-models');
  }

  /** Path of the model in use; undefined: none is. */
  inUse(): string | undefined {
    try {
      const name = readFileSync(join(this.folder, IN_USE), 'utf8').trim();
      return NAME.test(name) ? join(this.folder, name) : undefined;
    } catch {
      return undefined;
    }
  }

  pathOf(name: string): string {
    return join(this.folder, name);
  }

  /** Where downloads wait, to be continued. */
  get downloads(): string {
    return join(this.folder, DOWNLOADS);
  }

  /** Names of the models that are here, sorted. */
  async list(): Promise<string[]> {
    const names = await readdir(this.folder).catch(() => []);
    return names.filter((name) => NAME.test(name) && name !== IN_USE).sort();
  }

  async has(name: string): Promise<boolean> {
    return (await this.list()).includes(name);
  }

  /** The running host's engine looks at this file by itself. */
  async use(name: string | undefined): Promise<void> {
    const file = join(this.folder, IN_USE);
    if (name === undefined) return rm(file, { force: true });
    await this.#makeFolder(this.folder);
    await writeFile(`${file}.new`, `${name}\n`);
    await this.#give(`${file}.new`);
    await rename(`${file}.new`, file);
  }

  async remove(name: string): Promise<void> {
    if (!NAME.test(name)) throw new Error(`${name} is no name of a model`);
    await rm(join(this.folder, name), { recursive: true, force: true });
  }

  /**
   * Puts a model into its place: whatever `fill` puts into the folder that it gets, or the one file or folder in it that
   * `fill` names.
   * @throws what `fill` throws; nothing is left behind then
   */
  async put(name: string, fill: (folder: string) => Promise<string>): Promise<string> {
    if (!NAME.test(name) || name === IN_USE) throw new Error(`${name} is no name of a model`);
    await this.#makeFolder(this.folder);
    const unfinished = await mkdtemp(join(this.folder, UNFINISHED));
    try {
      const made = await fill(unfinished);
      await this.#giveAll(made);
      const place = join(this.folder, name);
      await rm(place, { recursive: true, force: true });
      await rename(made, place);
      return place;
    } finally {
      // What was refused may still be writing the files that it had begun.
      await rm(unfinished, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
    }
  }

  async makeDownloads(): Promise<string> {
    await this.#makeFolder(this.folder);
    await this.#makeFolder(this.downloads);
    return this.downloads;
  }

  async #makeFolder(folder: string): Promise<void> {
    if ((await mkdir(folder, { recursive: true })) !== undefined) await this.#give(folder);
  }

  /** Root often runs the command for a host that is another user. */
  async #give(path: string): Promise<void> {
    if (process.getuid?.() !== 0) return;
    const { uid, gid } = await stat(join(this.folder, '..'));
    await chown(path, uid, gid);
  }

  async #giveAll(path: string): Promise<void> {
    await this.#give(path);
    if (!(await lstat(path)).isDirectory()) return;
    for (const name of await readdir(path)) await this.#giveAll(join(path, name));
  }
}
