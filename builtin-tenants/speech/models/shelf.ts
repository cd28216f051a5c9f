/**
 * The models of one host, in `<data>/speech-models`: a folder for each sherpa-onnx model, a file for each of
 * whisper.cpp; `in-use` names the one that transcribes, `voices-in-use` those that
 * speak, `helpers-in-use` those that help it. Downloads wait in `.downloads`, what is being
 * unpacked in `.unfinished-*`: nothing has a name of its own before it is whole.
 */
import { readFileSync } from 'node:fs';
import { chown, lstat, mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';

/** The file that names the model in use. */
export const IN_USE = 'in-use';
/** The file that names the voices in use, the preferred one first. */
export const VOICES_IN_USE = 'voices-in-use';
/** The file that names the models in use that help the one that transcribes, the preferred one of each kind first. */
export const HELPERS_IN_USE = 'helpers-in-use';
export const IN_USE_FILES = [IN_USE, VOICES_IN_USE, HELPERS_IN_USE];
const RESERVED = new Set(IN_USE_FILES);
const DOWNLOADS = '.downloads';
const UNFINISHED = '.unfinished-';
/** Names of models are names of files: nothing that leads elsewhere, and nothing hidden. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export class ModelShelf {
  readonly folder: string;

  constructor(dataFolder: string) {
    this.folder = join(dataFolder, 'speech-models');
  }

  /** Path of the model that transcribes; undefined: none does. */
  inUse(): string | undefined {
    return this.#namedIn(IN_USE)[0];
  }

  /** Paths of the voices, the preferred one first. */
  voicesInUse(): string[] {
    return this.#namedIn(VOICES_IN_USE);
  }

  helpersInUse(): string[] {
    return this.#namedIn(HELPERS_IN_USE);
  }

  #namedIn(file: string): string[] {
    try {
      const names = readFileSync(join(this.folder, file), 'utf8').split('\n');
      return names
        .map((name) => name.trim())
        .filter((name) => NAME.test(name))
        .map((name) => this.pathOf(name));
    } catch {
      return [];
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
    return names.filter((name) => NAME.test(name) && !RESERVED.has(name)).sort();
  }

  async has(name: string): Promise<boolean> {
    return (await this.list()).includes(name);
  }

  /** The running host's engine looks at this file by itself. */
  async use(name: string | undefined): Promise<void> {
    await this.#write(IN_USE, name === undefined ? [] : [name]);
  }

  /** Before all other voices. */
  async useVoice(name: string): Promise<void> {
    await this.#put(VOICES_IN_USE, name);
  }

  /** Before all others of its kind. */
  async useHelper(name: string): Promise<void> {
    await this.#put(HELPERS_IN_USE, name);
  }

  /** A voice or a helper is used no more. */
  async drop(name: string): Promise<void> {
    for (const file of [VOICES_IN_USE, HELPERS_IN_USE]) {
      const names = this.#names(file);
      if (names.includes(name))
        await this.#write(
          file,
          names.filter((one) => one !== name),
        );
    }
  }

  async #put(file: string, name: string): Promise<void> {
    await this.#write(file, [name, ...this.#names(file).filter((one) => one !== name)]);
  }

  #names(file: string): string[] {
    return this.#namedIn(file).map((path) => basename(path));
  }

  async #write(fileName: string, names: string[]): Promise<void> {
    const file = join(this.folder, fileName);
    if (names.length === 0) return rm(file, { force: true });
    await this.#makeFolder(this.folder);
    await writeFile(`${file}.new`, `${names.join('\n')}\n`);
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
    if (!NAME.test(name) || RESERVED.has(name)) throw new Error(`${name} is no name of a model`);
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
