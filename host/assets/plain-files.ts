/**
 * Which requests a static file answers and nothing else: the table that edges serve files from. What is not in it (a
 * redirect, a page for what is not there, a path whose rules are not plain) is left to workerd's service, which knows
 * all of it; so a file too few costs time alone.
 */
import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import type { AssetSettings, FileTable } from '../shared/contracts.ts';
import type { AssetList } from './asset-list.ts';
import { compressible, contentType } from './content-types.ts';
import { fileAt, type Handling, placesOf } from './html-handling.ts';
import { type Budget, PathPattern, TooMuchWork } from './path-rules.ts';
import { type HeaderRule, readHeaders, redirected } from './rule-files.ts';

/** Of what is written here. */
const FORMAT = 1;
/** What all patterns of a list may take: a fifth of a second. */
const MAX_STEPS = 20_000_000;
const FILES_A_TURN = 200;
const CACHE_CONTROL = 'public, max-age=0, must-revalidate';
const FIELD_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const BASE_PATH = /^(?:\/[A-Za-z0-9_-]+)+$/;
/** Fields that an edge makes itself. */
const OWN_FIELDS = new Set([
  'accept-ranges',
  'connection',
  'content-length',
  'content-range',
  'date',
  'etag',
  'keep-alive',
  'transfer-encoding',
  'upgrade',
]);
/** Of workerd's service, as long as there is no `.assetsignore`; ours was applied before files were sent. */
const NEVER_SERVED = /(?:^|\/)(?:_headers|_redirects|\.assetsignore)$/;

/** Name of the table of these settings, without what it is for. */
export function tableName({ list, htmlHandling, notFoundHandling, basePath, runWorkerFirst }: AssetSettings): string {
  const rest = JSON.stringify([FORMAT, htmlHandling, notFoundHandling, basePath, runWorkerFirst]);
  return `${list}.${createHash('sha256').update(rest).digest('hex').slice(0, 16)}`;
}

/** Files at paths that get another field block each would make the table much larger than the list. */
class FieldBlocks {
  readonly blocks: FileTable['fields'] = [];
  readonly #known = new Map<string, number>();

  add(block: FileTable['fields'][number]): number {
    const key = JSON.stringify(block);
    let index = this.#known.get(key);
    if (index === undefined) {
      index = this.blocks.push(block) - 1;
      this.#known.set(key, index);
    }
    return index;
  }
}

/** @returns a table without files where the settings leave nothing to be sure of */
export async function plainFiles(settings: AssetSettings, list: AssetList): Promise<FileTable> {
  const budget: Budget = { steps: MAX_STEPS };
  try {
    return await tableOf(settings, list, budget);
  } catch (error) {
    if (error instanceof TooMuchWork) return { fields: [], paths: {} };
    throw error;
  }
}

async function tableOf(settings: AssetSettings, list: AssetList, budget: Budget): Promise<FileTable> {
  const blocks = new FieldBlocks();
  const paths: FileTable['paths'] = {};
  const table: FileTable = { fields: blocks.blocks, paths };
  const { basePath = '/' } = settings;
  const base = basePath === '/' ? '' : basePath;
  const rules = readHeaders(list.headers ?? '');
  const toCode = codePatterns(settings.runWorkerFirst);
  const hosts = (rules ?? []).flatMap((rule) => rule.hosts || []);
  if (hosts.length > 0) table.exceptHosts = [...new Set(hosts)];
  if (!rules || !toCode || (base !== '' && !BASE_PATH.test(base))) return table;
  const moved = redirected(list.redirects ?? '');
  const handling: Handling = {
    html: settings.htmlHandling ?? 'auto-trailing-slash',
    notFound: settings.notFoundHandling ?? 'none',
    has: (file) => Object.hasOwn(list.files, file) && !NEVER_SERVED.test(file),
  };
  const matches = (pattern: PathPattern, path: string) => pattern.match(path, budget) !== undefined;
  let done = 0;
  for (const file of Object.keys(list.files)) {
    if (++done % FILES_A_TURN === 0) await turn();
    for (const place of placesOf(file)) {
      if (fileAt(place, handling) !== file) continue;
      const path = base + place.split('/').map(encodeURIComponent).join('/');
      if (path.startsWith('/cdn-cgi/') || moved.some((pattern) => matches(pattern, path))) continue;
      if (!toCode.never.some((p) => matches(p, path)) && toCode.always.some((p) => matches(p, path))) continue;
      const block = fieldsAt(path, contentType(file), rules, budget);
      if (block) paths[path] = [list.files[file] ?? '', blocks.add(block)];
    }
  }
  return table;
}

/** @returns undefined where every request goes to the code, or a pattern is of a kind that only workerd decides */
function codePatterns(first: AssetSettings['runWorkerFirst']): Record<'always' | 'never', PathPattern[]> | undefined {
  if (first === true) return undefined;
  if (!first) return { always: [], never: [] };
  const never = first.filter((rule) => rule.startsWith('!')).map((rule) => rule.slice(1));
  const always = first.filter((rule) => !rule.startsWith('!'));
  if (always.length === 0 || [...always, ...never].some((rule) => !rule.startsWith('/'))) return undefined;
  return {
    always: always.map((rule) => new PathPattern(rule, false)),
    never: never.map((rule) => new PathPattern(rule, false)),
  };
}

/** @returns undefined where the edge cannot answer as these rules ask */
function fieldsAt(
  path: string,
  type: string | undefined,
  rules: readonly HeaderRule[],
  budget: Budget,
): FileTable['fields'][number] | undefined {
  const fields = new Map<string, string[]>();
  if (type !== undefined) fields.set('content-type', [type]);
  fields.set('cache-control', [CACHE_CONTROL]);
  let standard = true;
  const given = new Set<string>();
  for (const { pattern, hosts, set, unset } of rules) {
    const found = pattern.match(path, budget);
    if (!found) continue;
    if (hosts === '') return undefined;
    // At such a host the table is not asked.
    if (hosts !== undefined) continue;
    for (const name of [...unset.map((each) => each.toLowerCase()), ...set.map(([each]) => each)]) {
      if (!FIELD_NAME.test(name) || OWN_FIELDS.has(name)) return undefined;
      if (name === 'cache-control') standard = false;
    }
    for (const name of unset) fields.delete(name.toLowerCase());
    for (const [name, template] of set) {
      let text = template;
      for (const [each, part] of found) {
        // In a replacement it would mean something.
        if (part.includes('$')) return undefined;
        text = text.replaceAll(`:${each}`, part);
      }
      const value = Buffer.from(text).toString('latin1');
      if (!FIELD_VALUE.test(value)) return undefined;
      const present = given.has(name) ? fields.get(name) : undefined;
      given.add(name);
      if (present === undefined) fields.set(name, [value]);
      else if (name === 'set-cookie') present.push(value);
      else present[0] = `${present[0]}, ${value}`;
    }
  }
  const control = fields.get('cache-control')?.join(', ') ?? '';
  const coded =
    compressible(fields.get('content-type')?.[0]) && !fields.has('content-encoding') && !/no-transform/i.test(control);
  if (standard) fields.delete('cache-control');
  const lines = [...fields].flatMap(([name, values]) => values.map((value) => `${name}: ${value}\r\n`));
  return { lines: lines.join(''), ...(standard ? { cacheControl: CACHE_CONTROL } : {}), coded };
}
