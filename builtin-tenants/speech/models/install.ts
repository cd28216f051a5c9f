/** Puts a model on the shelf: from its publisher, or from a file or folder that was brought here. */
import { cp, lstat, readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { helperFile, helperKind } from '../engine/listen/helpers.ts';
import { describeModel } from '../engine/listen/sherpa-onnx.ts';
import { describeVoice, isVoice } from '../engine/speak/sherpa-onnx-model.ts';
import type { Checksum, ModelKind } from './catalogue.ts';
import { download, forget } from './download.ts';
import type { ModelShelf } from './shelf.ts';
import { unpack } from './unpack.ts';

export interface Steps {
  signal: AbortSignal;
  /** What begins now. */
  step(text: string): void;
  /** @param total bytes, where it is known */
  progress(bytes: number, total: number | undefined): void;
}

/** A file of whisper.cpp, or one of sherpa-onnx that is published alone. */
const FILE = /\.(bin|gguf|onnx)$/;
const ARCHIVE = /\.(tar\.bz2|tar\.gz|tgz|tar\.zst|tar)$/;

export async function kindOf(path: string): Promise<ModelKind> {
  if (helperKind(basename(path)) !== undefined) return 'helps';
  return isVoice(basename(path), await readdir(path).catch(() => [])) ? 'speaks' : 'hears';
}

/** @returns the name of the model's file or folder on the shelf */
export function shelfName(source: string): string {
  return basename(source).replace(ARCHIVE, '');
}

/**
 * @returns the model's path on the shelf, and the SHA-256 of what was downloaded
 * @throws Error that says what to do
 */
export async function installFromUrl(
  shelf: ModelShelf,
  source: { url: string; checksum?: Checksum | undefined },
  steps: Steps,
): Promise<{ path: string; sha256: string }> {
  const { pathname } = new URL(source.url);
  if (!FILE.test(pathname) && !ARCHIVE.test(pathname))
    throw new Error(
      `${source.url} is no model: its address must end with .tar.bz2, .tar.gz, .tar, .bin, .gguf or .onnx.`,
    );
  const folder = await shelf.makeDownloads();
  const { signal, progress } = steps;
  const { file, sha256 } = await download({ ...source, folder, signal, progress, notice: steps.step });
  const path = await putOnShelf(shelf, shelfName(pathname), file, steps);
  await forget(file);
  return { path, sha256 };
}

/** @param source archive, file of whisper.cpp, or folder of sherpa-onnx */
export async function installFromPath(shelf: ModelShelf, source: string, steps: Steps): Promise<string> {
  const found = await stat(source).catch(() => {
    throw new Error(`There is no file or folder at ${source}.`);
  });
  if (!found.isDirectory() && !FILE.test(source) && !ARCHIVE.test(source))
    throw new Error(
      `${source} is no model: it must be a folder, or end with .tar.bz2, .tar.gz, .tar, .bin, .gguf or .onnx.`,
    );
  return putOnShelf(shelf, shelfName(source), source, steps);
}

async function putOnShelf(shelf: ModelShelf, name: string, source: string, steps: Steps): Promise<string> {
  return shelf.put(name, async (folder) => {
    const place = join(folder, name);
    if ((await stat(source)).isDirectory()) {
      steps.step('copying');
      // A link could name any file of this machine, which the engine would then open.
      await cp(source, place, { recursive: true, filter: async (path) => !(await lstat(path)).isSymbolicLink() });
    } else if (FILE.test(name)) {
      steps.step('copying');
      await cp(source, place);
      return place;
    } else {
      steps.step('unpacking');
      await unpack(source, folder, steps.signal);
    }
    return modelFolder(folder, name);
  });
}

/** Archives hold one folder; some hold the files themselves. @throws Error where there is no model */
async function modelFolder(unpacked: string, name: string): Promise<string> {
  const [only, ...others] = await readdir(unpacked);
  const isOne = only !== undefined && others.length === 0 && (await stat(join(unpacked, only))).isDirectory();
  const folder = isOne ? join(unpacked, only) : unpacked;
  const files = await readdir(folder);
  // By the name that it will have: it tells the kind of some models.
  const place = join(unpacked, name);
  if (helperKind(name) !== undefined) helperFile(name, files);
  else if (isVoice(name, files)) describeVoice(place, files);
  else describeModel(place, files);
  return folder;
}
