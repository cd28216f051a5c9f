/** Static files of a project: found and hashed before anything is paid, and sent where the host does not have them. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { join, relative, resolve, sep } from 'node:path';
import ignore from 'ignore';
import { MAX_FILE_BYTES, MAX_FILES } from '../../assets/asset-list.ts';
import type { Manifest } from '../../manifest/project-manifest.ts';
import type { HostClient } from '../host-client.ts';
import { Failure } from '../terminal/failure.ts';
import { isInside, readRegularFile } from './regular-file.ts';

export interface StaticFiles {
  /** Path, such as `/img/logo.png` -> the file. */
  files: Map<string, { file: string; sha256: string; bytes: number }>;
  /** Everything else that an update says of them. */
  settings: Record<string, unknown>;
}

/** They are not served; wrangler reads them, too. */
const IGNORED = '.assetsignore';
const HEADERS = '_headers';
const REDIRECTS = '_redirects';
const LARGEST_TEXT = 1024 * 1024;
/** Files sent at the same time. */
const AT_ONCE = 6;

/** @throws Failure `usage` */
export async function readStaticFiles(
  folder: string,
  { directory, ...settings }: NonNullable<Manifest['assets']>,
): Promise<StaticFiles> {
  const root = await realpath(resolve(folder, directory)).catch(() => undefined);
  if (root === undefined || !(await stat(root)).isDirectory())
    throw new Failure(
      'usage',
      `The static files are to come from ${directory}, which is no folder. Build the project first?`,
    );
  if (!isInside(await realpath(folder), root))
    throw new Failure('usage', `The static files are to come from ${directory}, which is outside of the project.`);
  const text = (name: string) =>
    readRegularFile(join(root, name), LARGEST_TEXT).then(String, (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw new Failure('usage', `${join(directory, name)} cannot be read (${error.code}).`);
    });
  const [ignored, headers, redirects] = await Promise.all([text(IGNORED), text(HEADERS), text(REDIRECTS)]);
  const filter = ignore().add([IGNORED, HEADERS, REDIRECTS].map((name) => `/${name}`));
  if (ignored !== undefined) filter.add(ignored);
  const files: StaticFiles['files'] = new Map();
  for (const file of await filesOf(root, (name) => filter.ignores(name))) {
    const name = relative(root, file).split(sep).join('/');
    if (files.size === MAX_FILES) throw new Failure('usage', `${directory} has more than ${MAX_FILES} files.`);
    if (/^_worker\.js(\/|$)/.test(name)) {
      throw new Failure(
        'usage',
        `${directory} holds ${name}, which is code and would be public. Name it in "main", and in ${IGNORED}.`,
      );
    }
    const { size } = await stat(file);
    if (size > MAX_FILE_BYTES)
      throw new Failure(
        'usage',
        `${join(directory, name)} has ${size} bytes; a static file takes at most ${MAX_FILE_BYTES}.`,
      );
    files.set(`/${name}`, { file, sha256: await sha256Of(file), bytes: size });
  }
  return {
    files,
    settings: {
      ...settings,
      ...(headers === undefined ? {} : { headers }),
      ...(redirects === undefined ? {} : { redirects }),
    },
  };
}

/** Regular files below a folder; links count where they lead to a file inside. */
async function filesOf(root: string, ignores: (name: string) => boolean): Promise<string[]> {
  const found: string[] = [];
  const look = async (folder: string): Promise<void> => {
    for (const entry of await readdir(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      const name = relative(root, path).split(sep).join('/');
      if (ignores(entry.isDirectory() ? `${name}/` : name)) continue;
      if (entry.isDirectory()) await look(path);
      else if (entry.isFile()) found.push(path);
      else if (entry.isSymbolicLink()) {
        const target = await realpath(path).catch(() => undefined);
        if (target === undefined || !isInside(root, target) || !(await stat(target)).isFile())
          throw new Failure(
            'usage',
            `${path} is a link to what is no static file of the project. Name it in ${IGNORED}.`,
          );
        found.push(path);
      }
    }
  };
  await look(root);
  return found.sort();
}

async function sha256Of(file: string): Promise<string> {
  const digest = createHash('sha256');
  for await (const piece of createReadStream(file)) digest.update(piece as Buffer);
  return digest.digest('hex');
}

/**
 * Sends what the host does not have.
 * @param progress told how many are sent
 * @returns what an update says of the files, and how many were sent
 */
export async function sendStaticFiles(
  host: HostClient,
  slug: string,
  { files, settings }: StaticFiles,
  progress: (line: string) => void,
): Promise<{ assets: object; sent: number }> {
  const place = `/_admin/${encodeURIComponent(slug)}/assets`;
  const byHash = new Map([...files.values()].map((one) => [one.sha256, one]));
  const token = host.tokens(slug);
  const { missing } = await host.withToken<{ missing: string[] }>(await token(), 'POST', place, {
    hashes: [...byHash.keys()],
  });
  const left = missing.flatMap((hash) => byHash.get(hash) ?? []);
  const sent = left.length;
  if (sent > 0) progress(`files   ${sent} of ${files.size} to send`);
  const next = async () => {
    for (let one = left.pop(); one; one = left.pop())
      await host.withToken(await token(), 'PUT', `${place}/${one.sha256}`, await readFile(one.file));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  const named = Object.fromEntries([...files].map(([path, { sha256 }]) => [path, sha256]));
  return { assets: { files: named, ...settings }, sent };
}
