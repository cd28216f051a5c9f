/**
 * A tenant's project: its `turnpike.json` and the flags over it, checked, as what the host takes.
 * Secrets never stand in the manifest: it names the file or the environment variable that holds each.
 */
import { dirname, join, relative, resolve } from 'node:path';
import { BINDINGS } from '../../bindings/index.ts';
import { type Manifest, manifestSchema, ownerOfFile } from '../../manifest/project-manifest.ts';
import type { ProjectBuild } from '../../runtime/bundle-project.ts';
import { nodeFlags } from '../../runtime/node-flags.ts';
import { Failure } from '../terminal/failure.ts';
import type { Terminal } from '../terminal/terminal.ts';
import { readRegularFile } from './regular-file.ts';
import { findWrangler, isWranglerFile, readWranglerFile, type WranglerFile, wranglerBuild } from './wrangler.ts';

const LARGEST_MANIFEST = 1024 * 1024;

export interface Project {
  manifest: Manifest;
  /** wrangler's configuration of the same project. `manifest` has what it says, too. */
  wrangler?: WranglerFile;
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
  preview?: boolean;
  secret?: string[];
  price?: string[];
  cron?: string[];
  payTo?: string;
  notify?: string;
  compatibilityDate?: string;
  compatibilityFlag?: string[];
  manifest?: string;
  root?: string;
  external?: string[];
  share?: string[];
  service?: string[];
  open?: string[];
  env?: string;
  secretsFrom?: string[];
  /** Of `turnpike dev`: databases on this machine are meant, too. */
  local?: boolean;
}

/**
 * Reads what says how the project is deployed, beside the entry file or in the working folder: wrangler's configuration,
 * and `turnpike.json`, whose members win. A named file counts alone. Without any, an empty manifest.
 * @param named `--manifest`
 * @param environment of wrangler's configuration
 * @throws Failure `usage`
 */
export async function readProject(
  terminal: Pick<Terminal, 'cwd'>,
  entry: string | undefined,
  named?: string,
  environment?: string,
): Promise<Project> {
  const project = await findProject(terminal, entry, named, environment);
  if (environment !== undefined && !project.wrangler) {
    const where = named ?? 'this folder has no wrangler.jsonc, wrangler.json or wrangler.toml';
    throw new Failure('usage', `--env ${environment} names an environment of wrangler's configuration: ${where}.`);
  }
  return project;
}

async function findProject(
  terminal: Pick<Terminal, 'cwd'>,
  entry: string | undefined,
  named: string | undefined,
  environment: string | undefined,
): Promise<Project> {
  if (named !== undefined) {
    const path = resolve(terminal.cwd, named);
    const wrangler = isWranglerFile(path) ? await readWranglerFile(path, environment) : undefined;
    const manifest = wrangler ? {} : ((await readManifest(path, false)) ?? {});
    return projectOf(dirname(path), manifest, wrangler);
  }
  const folders = entry === undefined ? [terminal.cwd] : [dirname(resolve(terminal.cwd, entry)), terminal.cwd];
  for (const folder of folders) {
    const manifest = await readManifest(join(folder, 'turnpike.json'), true);
    const wrangler = await findWrangler(folder, environment);
    if (manifest || wrangler) return projectOf(folder, manifest ?? {}, wrangler);
  }
  return { manifest: {}, folder: terminal.cwd };
}

async function projectOf(folder: string, manifest: Manifest, wrangler: WranglerFile | undefined): Promise<Project> {
  if (!wrangler) return { manifest, folder, found: true };
  const { entry, ...said } = wrangler.manifest;
  const place = (path: string) => relative(folder, resolve(dirname(wrangler.path), path));
  const { directory, ...files } = wrangler.assets ?? {};
  return {
    manifest: {
      ...(said as Manifest),
      ...(entry === undefined ? {} : { entry: place(entry) }),
      ...(directory === undefined ? {} : { assets: { directory: place(directory), ...files } }),
      ...manifest,
    },
    folder,
    found: true,
    wrangler,
    build: await wranglerBuild(wrangler),
  };
}

/** @param passing undefined is answered for a file that is not there, or is a host's */
async function readManifest(path: string, passing: boolean): Promise<Manifest | undefined> {
  const text = await readRegularFile(path, LARGEST_MANIFEST).then(String, (error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' && passing) return undefined;
    throw new Failure('usage', `${path} cannot be read (${error.code}).`);
  });
  if (text === undefined || (passing && isHostConfiguration(text))) return undefined;
  return parseManifest(text, path);
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
  const added = BINDINGS.filter(({ key, env }) => env && flags[key] === true).map(({ key, env = '' }) => {
    const present = bindings[key];
    return [key, typeof present === 'object' && present !== null ? { ...present, [env]: {} } : true] as const;
  });
  return { ...bindings, ...Object.fromEntries(added) };
}

/** Bindings with those of these names shared. What may not be shared, the host says. @throws Failure `usage` */
function withShared(bindings: Record<string, unknown>, names: string[]): Record<string, unknown> {
  const left = new Set(names);
  const all = Object.entries(bindings).map(([key, asked]) => {
    if (typeof asked !== 'object' || asked === null) return [key, asked] as const;
    const marked = Object.entries(asked).map(([name, settings]: [string, object]) => [
      name,
      names.includes(name) && left.delete(name) ? { ...settings, shared: true } : settings,
    ]);
    return [key, Object.fromEntries(marked)] as const;
  });
  const [missing] = left;
  if (missing === undefined) return Object.fromEntries(all);
  throw new Failure(
    'usage',
    `There is no binding ${missing} with settings of its own, which "share" or --share names.`,
  );
}

/** Bindings with services that flags add, and with what is opened to other owners. @throws Failure `usage` */
export function withServices(
  bindings: Record<string, unknown>,
  called: string[],
  opened: string[],
): Record<string, unknown> {
  const services: Record<string, object> = {};
  for (const text of called) {
    const [, name, service, entrypoint] = /^([\w$]+)=([a-z0-9-]*)(?:\/([\w$]+))?$/.exec(text) ?? [];
    if (name === undefined || !(service || entrypoint))
      throw new Failure('usage', `Not understood: --service ${text}. Write NAME=slug, or NAME=slug/Entrypoint.`);
    services[name] = { ...(service && { service }), ...(entrypoint && { entrypoint }) };
  }
  for (const text of opened) {
    const [, entrypoint, who] = /^(?:([\w$]+)=)?(0x[0-9a-fA-F]{40}(?:\/[a-z0-9-]+)?)$/.exec(text) ?? [];
    if (who === undefined)
      throw new Failure('usage', `Not understood: open ${text}. Write 0x…, 0x…/slug, or Entrypoint=0x….`);
    const name = entrypoint === undefined ? 'OPEN' : `OPEN_${entrypoint}`.slice(0, 64);
    const { open = [] } = (services[name] ?? {}) as { open?: string[] };
    services[name] = { ...(entrypoint && { entrypoint }), open: [...open, who] };
  }
  if (Object.keys(services).length === 0) return bindings;
  return { ...bindings, services: { ...(bindings.services || {}), ...services } };
}

/**
 * The settings that the host takes, without code and secrets. Only what was given is in it.
 * @param code as it is bundled
 */
export function projectSettings(
  { manifest }: Project,
  flags: ProjectFlags,
  code: object = {},
): Record<string, unknown> {
  const shared = [...(manifest.share ?? []), ...(flags.share ?? [])];
  const opened = [...(manifest.open ?? []), ...(flags.open ?? [])];
  const bindings = withServices(
    withShared(withFlags(manifest.bindings ?? {}, flags), shared),
    flags.service ?? [],
    opened,
  );
  const paidRoutes = flags.price ? flags.price.map(parsePrice) : manifest.paidRoutes;
  const compatibilityDate = flags.compatibilityDate ?? manifest.compatibilityDate;
  const compatibilityFlags = flags.compatibilityFlag ?? manifest.compatibilityFlags;
  const given = compatibilityFlags ?? [];
  const text = Object.values('modules' in code ? (code.modules as object) : {}).filter(
    (module) => typeof module === 'string',
  );
  const added = nodeFlags(text.join('\n'), compatibilityDate, given);
  const settings = {
    ...(Object.keys(bindings).length > 0 ? { bindings } : {}),
    vars: manifest.vars,
    crons: flags.cron ?? manifest.crons,
    paidRoutes,
    payTo: flags.payTo ?? manifest.payTo,
    notify: flags.notify ?? manifest.notify,
    compatibilityDate,
    compatibilityFlags: added.length > 0 ? [...given, ...added] : compatibilityFlags,
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
  if (slug === undefined)
    throw new Failure(
      'usage',
      'Which slug? Give --slug <name>, or "slug" in turnpike.json, or "name" in wrangler.jsonc.',
    );
  return slug;
}
