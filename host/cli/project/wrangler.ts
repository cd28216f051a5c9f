/**
 * The project's wrangler configuration on disk: which file counts, and what it means for a deploy. What its keys mean is
 * in host/manifest/wrangler.ts.
 */
import { basename, dirname, join, relative, resolve } from 'node:path';
import { readWrangler, WranglerFault, type WranglerProject } from '../../manifest/wrangler.ts';
import type { ProjectBuild } from '../../runtime/bundle-project.ts';
import { Failure } from '../terminal/failure.ts';
import { pathInside, readRegularFile } from './regular-file.ts';

/** In the order in which wrangler looks for them. */
const NAMES = ['wrangler.json', 'wrangler.jsonc', 'wrangler.toml'];
/** Where build tools say which configuration their output has: https://developers.cloudflare.com/workers/wrangler/configuration/#generated-wrangler-configuration */
const REDIRECT = join('.wrangler', 'deploy', 'config.json');
const LARGEST = 1024 * 1024;

export interface WranglerFile extends WranglerProject {
  path: string;
}

/** Whether `--manifest` names a file of wrangler. */
export function isWranglerFile(path: string): boolean {
  return NAMES.includes(basename(path)) || /\.(toml|jsonc)$/.test(path);
}

/** @returns undefined where the folder has none */
export async function findWrangler(folder: string, environment: string | undefined): Promise<WranglerFile | undefined> {
  for (const path of [await redirected(folder), ...NAMES.map((name) => join(folder, name))]) {
    const found = path === undefined ? undefined : await readWranglerFile(path, environment, true);
    if (found) return found;
  }
  return undefined;
}

/**
 * @param optional undefined is answered where there is no such file
 * @throws Failure `usage`
 */
export async function readWranglerFile(
  path: string,
  environment: string | undefined,
  optional = false,
): Promise<WranglerFile | undefined> {
  const text = await readRegularFile(path, LARGEST).then(String, (error: NodeJS.ErrnoException) => {
    if (optional && error.code === 'ENOENT') return undefined;
    throw new Failure('usage', `${path} cannot be read (${error.code}).`);
  });
  if (text === undefined) return undefined;
  try {
    return {
      ...readWrangler(text, basename(path), environment === undefined ? {} : { environment }),
      path,
    };
  } catch (error) {
    if (error instanceof WranglerFault) throw new Failure('usage', error.message);
    throw error;
  }
}

async function redirected(folder: string): Promise<string | undefined> {
  const path = join(folder, REDIRECT);
  const text = await readRegularFile(path, LARGEST).then(String, () => undefined);
  if (text === undefined) return undefined;
  let named: unknown;
  try {
    named = (JSON.parse(text) as { configPath?: unknown }).configPath;
  } catch {
    named = undefined;
  }
  if (typeof named !== 'string') throw new Failure('usage', `${path} names no configuration; build the project again.`);
  const target = resolve(dirname(path), named);
  // The tools write a path from their own folder, up and down again.
  await pathInside(folder, relative(folder, target)).catch(() => {
    throw new Failure('usage', `${path} names ${named}, which is not there or outside of the project; build it again.`);
  });
  return target;
}

/** How the code of such a project is bundled. @throws Failure `usage` */
export async function wranglerBuild({ build, manifest, path }: WranglerFile): Promise<Omit<ProjectBuild, 'root'>> {
  const folder = dirname(path);
  const {
    rules,
    alias,
    define,
    baseDir,
    findAdditionalModules,
    noBundle,
    tsconfig,
    minify,
    keepNames,
    jsxFactory,
    jsxFragment,
  } = build;
  return {
    rules,
    alias: Object.fromEntries(
      Object.entries(alias).map(([from, to]) => [from, to.startsWith('.') ? resolve(folder, to) : to]),
    ),
    define,
    ...((findAdditionalModules ?? noBundle) && manifest.entry !== undefined
      ? { additional: await folderInside(folder, baseDir ?? dirname(manifest.entry), path) }
      : {}),
    ...(tsconfig === undefined ? {} : { tsconfig: await inside(folder, tsconfig, path) }),
    ...(minify === undefined ? {} : { minify }),
    ...(keepNames === undefined ? {} : { keepNames }),
    ...(jsxFactory === undefined ? {} : { jsxFactory }),
    ...(jsxFragment === undefined ? {} : { jsxFragment }),
  };
}

/** Of what is to be built yet, the folder need not be there. */
async function folderInside(folder: string, name: string, path: string): Promise<string> {
  return pathInside(folder, name).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return resolve(folder, name);
    throw new Failure('usage', `${path}: base_dir names ${name}, which is outside of the project.`);
  });
}

async function inside(folder: string, name: string, path: string): Promise<string> {
  return pathInside(folder, name).catch(() => {
    throw new Failure('usage', `${path}: tsconfig names ${name}, which is not a file of the project.`);
  });
}

/** @throws Failure `usage` that names everything that the project needs and this host does not have */
export function requireOffered({ refused }: WranglerFile): void {
  if (refused.length === 0) return;
  const errors = refused.map(({ key, reason, ...place }) => ({ pointer: key, detail: `${key}: ${reason}`, ...place }));
  throw new Failure('usage', 'The project needs what this host does not have. Nothing was sent or paid.', { errors });
}
