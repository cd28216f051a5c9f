/**
 * Reads the configuration: config/turnpike.default.json < turnpike.host.json < environment < flags.
 * Unknown keys are refused with the nearest known one; values are checked by the schema in shared/config.ts.
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { closest, distance } from 'fastest-levenshtein';
import { z } from 'zod';
import { ownerOfFile } from '../manifest/project-manifest.ts';
import { type Config, configSchema } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';

type Tree = { [key: string]: unknown };

/** One setting: its place, its names outside, its default. */
export interface Setting {
  path: string[];
  /** `storage.s3.endpoint` */
  key: string;
  /** `TURNPIKE_STORAGE_S3_ENDPOINT` */
  env: string;
  /** `--storage-s3-endpoint` */
  flag: string;
  description: string;
  type: 'string' | 'number' | 'boolean' | 'json';
  default: unknown;
}

const DEFAULTS = fileURLToPath(new URL('../../config/turnpike.default.json', import.meta.url));

export interface Sources {
  /** Folder in which `turnpike.host.json` is looked for. */
  folder: string;
  env: Record<string, string | undefined>;
  /** Flags without the program's name, such as `['--port', '0']`. */
  flags: string[];
  /** Receives, by the key of each setting that is not the default, where it comes from. */
  origins?: Map<string, string>;
  /** Receives warnings for the operator; the host starts all the same. Default: warnings are dropped. */
  notice?: (text: string) => void;
}

export const HOST_FILE = 'turnpike.host.json';
/** Where earlier versions had the host's settings; a project has its own there. */
const FORMER_FILE = 'turnpike.json';
/** What `origins` names where a setting is from the folder. */
export const OWN_FILES: ReadonlySet<string> = new Set([HOST_FILE, FORMER_FILE]);

/** @throws Problem invalid_config that names every bad key and where it came from */
export function loadConfig({ folder, env, flags, origins, notice = () => {} }: Sources): Config {
  const all = settings();
  const tree = readTree(DEFAULTS);
  const own = readOwnFile(folder, notice);
  if (own) {
    merge(tree, own.tree, [], own.file, notice);
    for (const { key, path: place } of all) if (holds(own.tree, place)) origins?.set(key, path.basename(own.file));
  }
  for (const [name, text] of Object.entries(env)) {
    if (!name.startsWith('TURNPIKE_') || text === undefined || NOT_SETTINGS.has(name)) continue;
    const setting = named(all, 'env', name, notice);
    if (!setting)
      throw unknown(
        name,
        all.map((candidate) => candidate.env),
        'the environment',
      );
    assign(tree, setting.path, parseText(setting, text, name));
    origins?.set(setting.key, name);
  }
  for (const [flag, text] of splitFlags(flags, all)) {
    const setting = named(all, 'flag', flag, notice);
    if (!setting)
      throw unknown(
        flag,
        all.map((candidate) => candidate.flag),
        'the command line',
      );
    assign(tree, setting.path, parseText(setting, text, flag));
    origins?.set(setting.key, flag);
  }
  const parsed = configSchema.safeParse(tree);
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
  throw new Problem('invalid_config', `The configuration is invalid: ${faults.join('; ')}.`);
}

/** Settings that have a new name: earlier one -> present one. The earlier one is still read, with a notice. */
const RENAMED: Record<string, string> = {
  'runtime.swollenIdleMs': 'runtime.bloatedIdleMs',
  'runtime.swollenBytes': 'runtime.bloatedBytes',
};

/** The setting that a name stands for; tells the operator when the name is an earlier one. */
function named(
  all: Setting[],
  kind: 'env' | 'flag',
  name: string,
  notice: (text: string) => void,
): Setting | undefined {
  const present = all.find((candidate) => candidate[kind] === name);
  const former = Object.keys(RENAMED).find((key) => outsideNames(key.split('.'))[kind] === name);
  if (present || former === undefined) return present;
  const renamed = all.find((candidate) => candidate.key === RENAMED[former]);
  if (renamed) notice(renamedNotice(name, renamed[kind]));
  return renamed;
}

function renamedNotice(former: string, present: string): string {
  return `The setting ${former} is now called ${present}; please rename it.`;
}

/** Records: their keys (slugs, names of secrets) are free; everything else is known. */
const FREE_KEYS = new Set(['runtime.egressAllow', 'builtinTenants.secrets']);

/** Used by the command and by tools around the host, not settings of the host. */
const NOT_SETTINGS = new Set(['TURNPIKE_URL', 'TURNPIKE_WALLET', 'TURNPIKE_PRIVATE_KEY', 'TURNPIKE_TOKEN']);

/** Every setting, from the schema itself. */
export function settings(): Setting[] {
  const defaults = readTree(DEFAULTS);
  return leaves(configSchema, []).map(({ path: place, schema }) => ({
    path: place,
    key: place.join('.'),
    ...outsideNames(place),
    description: schema.description ?? '',
    type: kind(schema),
    default: place.reduce<unknown>((node, key) => (node as Tree)[key], defaults),
  }));
}

function outsideNames(place: string[]): { env: string; flag: string } {
  return {
    env: `TURNPIKE_${place.map((part) => words(part).join('_').toUpperCase()).join('_')}`,
    flag: `--${place.map((part) => words(part).join('-')).join('-')}`,
  };
}

function leaves(schema: z.ZodType, place: string[]): { path: string[]; schema: z.ZodType }[] {
  if (!(schema instanceof z.ZodObject)) return [{ path: place, schema }];
  return Object.entries(schema.shape).flatMap(([key, child]) => leaves(child as z.ZodType, [...place, key]));
}

function kind(schema: z.ZodType): Setting['type'] {
  if (schema instanceof z.ZodNumber) return 'number';
  if (schema instanceof z.ZodBoolean) return 'boolean';
  if (schema instanceof z.ZodArray || schema instanceof z.ZodRecord) return 'json';
  return 'string';
}

/** `publicUrl` -> public, url; `x402` and `s3` stay whole. */
function words(name: string): string[] {
  return name
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(' ');
}

function readTree(file: string): Tree {
  const refuse = (why: string, cause?: unknown) => new Problem('invalid_config', `${file} ${why}`, { cause });
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw refuse(`cannot be read: ${(error as Error).message}`, error);
  }
  let tree: unknown;
  try {
    tree = JSON.parse(text);
  } catch (error) {
    throw refuse(`is not JSON: ${(error as Error).message}`, error);
  }
  if (!isTree(tree)) throw refuse('must hold an object, such as {"port": 8402}.');
  return tree;
}

/** The host's own file, or nothing where there is none. */
function readOwnFile(folder: string, notice: (text: string) => void): { file: string; tree: Tree } | undefined {
  const file = path.join(folder, HOST_FILE);
  const former = path.join(folder, FORMER_FILE);
  if (existsSync(file)) {
    if (existsSync(former) && ownerOfText(former) === 'host')
      notice(`${former} is not read, as there is ${HOST_FILE}. Move what you need from it, then delete it.`);
    return { file, tree: readTree(file) };
  }
  if (!existsSync(former)) return undefined;
  const tree = readTree(former);
  if (ownerOfFile(tree) === 'project') return undefined;
  notice(`${former} holds settings of the host: rename it to ${HOST_FILE}. turnpike.json is the file of a project.`);
  return { file: former, tree };
}

function ownerOfText(file: string): ReturnType<typeof ownerOfFile> {
  try {
    return ownerOfFile(readTree(file));
  } catch {
    return 'unclear';
  }
}

function merge(into: Tree, from: Tree, place: string[], source: string, notice: (text: string) => void): void {
  for (const [given, value] of Object.entries(from)) {
    const renamed = RENAMED[[...place, given].join('.')];
    const key = renamed?.split('.').at(-1) ?? given;
    if (renamed !== undefined) notice(renamedNotice([...place, given].join('.'), `${renamed} (in ${source})`));
    if (place.length === 0 && key === '$schema') continue;
    if (!Object.hasOwn(into, key)) {
      if (!FREE_KEYS.has(place.slice(0, 2).join('.'))) {
        throw unknown(
          [...place, key].join('.'),
          Object.keys(into).map((known) => [...place, known].join('.')),
          source,
        );
      }
      into[key] = value;
      continue;
    }
    const present = into[key];
    if (!isTree(present)) into[key] = value;
    else if (isTree(value)) merge(present, value, [...place, key], source, notice);
    else throw new Problem('invalid_config', `${[...place, key].join('.')} in ${source} must be an object.`);
  }
}

function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Also where it stands under its earlier name. */
function holds(tree: Tree, place: string[]): boolean {
  const former = Object.keys(RENAMED).find((name) => RENAMED[name] === place.join('.'));
  return [place, former?.split('.') ?? place].some((path) => {
    let node: unknown = tree;
    for (const key of path) node = isTree(node) ? node[key] : undefined;
    return node !== undefined;
  });
}

/** Settings that are secrets, or addresses and commands that may hold one. */
const SECRET = new Set([
  'ai.key',
  'builtinTenants.secrets',
  'cluster.database',
  'cluster.key',
  'cluster.storage.accessKey',
  'cluster.storage.secretKey',
  'mail.smtpUrl',
  'payments.also',
  'payments.rpcUrl',
  'payments.x402.facilitator.key',
  'payments.x402.rpcUrl',
  'storage.sql',
  'storage.sqlAdmin',
  'storage.sqlToken',
  'storage.s3.accessKey',
  'storage.s3.secretKey',
  'tls.acme.dnsHook',
]);

/** What holds, and where it comes from. Of a secret, only whether it is set. @param origins as `loadConfig` filled it */
export function settingsInForce(config: Config, origins: ReadonlyMap<string, string>) {
  return settings().map(({ key, path: place, description }) => {
    const value = place.reduce<unknown>((node, part) => (node as Tree)[part], config);
    const source = origins.get(key) ?? 'default';
    const secret = SECRET.has(key) && source !== 'default';
    return { key, value: secret ? null : value, source, secret, description };
  });
}

function assign(tree: Tree, place: string[], value: unknown): void {
  const last = place.at(-1) ?? '';
  let node = tree;
  for (const key of place.slice(0, -1)) node = node[key] as Tree;
  node[last] = value;
}

function* splitFlags(flags: string[], all: Setting[]): Generator<[string, string]> {
  for (let index = 0; index < flags.length; index++) {
    const [flag = '', inline] = splitOnce(flags[index] ?? '');
    if (!flag.startsWith('--'))
      throw new Problem(
        'invalid_config',
        `Unknown argument: ${flag}. Settings are flags such as --port 8402; see --help.`,
      );
    const setting = all.find((candidate) => candidate.flag === flag);
    if (inline !== undefined) yield [flag, inline];
    else if (setting?.type === 'boolean' && !/^(true|false)$/.test(flags[index + 1] ?? '')) yield [flag, 'true'];
    else {
      const value = flags[++index];
      if (setting && value === undefined) throw new Problem('invalid_config', `${flag} needs a value.`);
      yield [flag, value ?? ''];
    }
  }
}

function splitOnce(text: string): [string, string | undefined] {
  const at = text.indexOf('=');
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

function parseText(setting: Setting, text: string, name: string): unknown {
  switch (setting.type) {
    case 'number': {
      if (!/^-?\d+$/.test(text))
        throw new Problem('invalid_config', `${name} takes a whole number, not ${JSON.stringify(text)}.`);
      return Number(text);
    }
    case 'boolean':
      if (text !== 'true' && text !== 'false') throw new Problem('invalid_config', `${name} takes true or false.`);
      return text === 'true';
    case 'json':
      try {
        return text.startsWith('[') || text.startsWith('{')
          ? JSON.parse(text)
          : text === ''
            ? []
            : text.split(',').map((part) => part.trim());
      } catch {
        throw new Problem('invalid_config', `${name} takes JSON or a comma-separated list.`);
      }
    default:
      return text;
  }
}

function unknown(name: string, known: string[], source: string): Problem {
  const near = closest(name, known);
  const hint =
    distance(name, near) <= Math.max(3, name.length / 2)
      ? ` Did you mean ${near}?`
      : ' All of them: npm start -- --help.';
  return new Problem('invalid_config', `Unknown setting ${name} in ${source}.${hint}`);
}
