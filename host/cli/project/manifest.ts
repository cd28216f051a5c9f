/**
 * A tenant's project: its `turnpike.json` and the flags over it, checked, as what the host takes.
 * Secrets never stand in the manifest: it names the file or the environment variable that holds each.
 */
import { dirname, join, resolve } from 'node:path';
import { BINDINGS } from '../../bindings/index.ts';
import { type Manifest, manifestSchema, ownerOfFile } from '../../manifest/project-manifest.ts';
import type { ProjectBuild } from '../../runtime/bundle-project.ts';
import { Failure } from '../terminal/failure.ts';
import type { Terminal } from '../terminal/terminal.ts';
import { readRegularFile } from './regular-file.ts';

const LARGEST_MANIFEST = 1024 * 1024;

export interface Project {
  manifest: Manifest;
  /** How its code is bundled, where that is not the usual way. */
  build?: Omit<ProjectBuild, 'root'>;
  /** Folder that the manifest's paths are relative to. */
  folder: string;
  /** Whether there is a manifest: then the folder is the project, and not just where the command was called. */
  found?: boolean;
}

/** Settings as flags; each wins over the manifest. There is one more for each binding, named by its key. */
export interface ProjectFlags {
  [binding: string]: unknown;
  slug?: string;
  secret?: string[];
  price?: string[];
  cron?: string[];
  payTo?: string;
  notify?: string;
  compatibilityDate?: string;
  compatibilityFlag?: string[];
  manifest?: string;
  root?: string;
}

/**
 * Reads the manifest: the named one, or `turnpike.json` beside the entry file or in the working folder.
 * Without one, an empty manifest.
 */
export async function readProject(
  terminal: Pick<Terminal, 'cwd'>,
  entry: string | undefined,
  named?: string,
): Promise<Project> {
  const folders = entry === undefined ? [terminal.cwd] : [dirname(resolve(terminal.cwd, entry)), terminal.cwd];
  const places =
    named === undefined ? folders.map((folder) => join(folder, 'turnpike.json')) : [resolve(terminal.cwd, named)];
  for (const path of places) {
    const text = await readRegularFile(path, LARGEST_MANIFEST).then(String, (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' && named === undefined) return undefined;
      throw new Failure('usage', `${path} cannot be read (${error.code}).`);
    });
    if (text === undefined || (named === undefined && isHostConfiguration(text))) continue;
    return { manifest: parseManifest(text, path), folder: dirname(path), found: true };
  }
  return { manifest: {}, folder: terminal.cwd };
}

/** Earlier versions read a host's settings from a file of this name. */
function isHostConfiguration(text: string): boolean {
  try {
    return ownerOfFile(JSON.parse(text) as object) === 'host';
  } catch {
    return false;
  }
}

/** @throws Failure `usage` that names every bad member */
export function parseManifest(text: string, path: string): Manifest {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (error) {
    throw new Failure('usage', `${path} is not JSON: ${(error as Error).message}`);
  }
  const parsed = manifestSchema.safeParse(document);
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map((issue) => `${issue.path.join('.') || 'it'}: ${issue.message}`);
  throw new Failure(
    'usage',
    `${path} is not acceptable: ${faults.join('; ')}. The members of a project's turnpike.json are listed in host/cli/project/MANIFEST.md; settings of a host belong in turnpike.host.json.`,
  );
}

/** `POST /v1/x=0.05`: a fixed price; `POST /v1/x<=0.05`: metered, at most that. */
export function parsePrice(text: string): { method: string; path: string; price: string; mode: 'fixed' | 'metered' } {
  const match = /^(?:([A-Za-z]+|\*)\s+)?(\/\S*?)\s*(<?=)\s*\$?(\d+(?:\.\d+)?)$/.exec(text.trim());
  if (!match) {
    throw new Failure(
      'usage',
      `Not understood: --price ${text}. Write "POST /v1/x=0.05", or "POST /v1/x<=0.05" for metered.`,
    );
  }
  const [, method = '*', path = '', sign, price = ''] = match;
  return { method: method.toUpperCase(), path, price, mode: sign === '<=' ? 'metered' : 'fixed' };
}

/** Bindings and those that flags add: `--kv` beside names of one's own is one more, by its usual name. */
export function withFlags(bindings: Record<string, unknown>, flags: ProjectFlags): Record<string, unknown> {
  const added = BINDINGS.filter(({ key }) => flags[key] === true).map(({ key, env }) => {
    const present = bindings[key];
    return [key, typeof present === 'object' && present !== null ? { ...present, [env]: {} } : true] as const;
  });
  return { ...bindings, ...Object.fromEntries(added) };
}

/** The settings that the host takes, without code and secrets. Only what was given is in it. */
export function projectSettings({ manifest }: Project, flags: ProjectFlags): Record<string, unknown> {
  const bindings = withFlags(manifest.bindings ?? {}, flags);
  const paidRoutes = flags.price ? flags.price.map(parsePrice) : manifest.paidRoutes;
  const settings = {
    ...(Object.keys(bindings).length > 0 ? { bindings } : {}),
    vars: manifest.vars,
    crons: flags.cron ?? manifest.crons,
    paidRoutes,
    payTo: flags.payTo ?? manifest.payTo,
    notify: flags.notify ?? manifest.notify,
    compatibilityDate: flags.compatibilityDate ?? manifest.compatibilityDate,
    compatibilityFlags: flags.compatibilityFlag ?? manifest.compatibilityFlags,
  };
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
}

/** What is remembered of a slug that belongs to a project. */
export function slugKey(slug: string, origin: string): string {
  return `slug ${slug} ${origin}`;
}

/** The slug of the flags or the manifest. @throws Failure `usage` */
export function slugOf({ manifest }: Project, given: string | undefined): string {
  const slug = given ?? manifest.slug;
  if (slug === undefined) throw new Failure('usage', 'Which slug? Give --slug <name>, or "slug" in turnpike.json.');
  return slug;
}
