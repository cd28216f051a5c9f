/**
 * A database that nobody runs, on its way from a box to nodes or back: both are SQLite files, so it goes as it is, and what
 * the engine of either side finds in it is compared. The file is the tenant's, who may have written anything into it: it is
 * opened in a sandbox only, and what comes out is checked.
 */
import { createHash, createHmac } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { build } from 'esbuild';
import { z } from 'zod';
import type { Bind, Sandbox } from '../../sandbox/confinement.ts';
import { type CopiedDatabases, runOnCopies } from '../durable-objects/copied-databases.ts';
import { DATABASES_ID } from './binding.ts';
import { nativeBinding } from './database-process.ts';

/** A database in a folder of its own, below which it is `-databases/<id>.sqlite`, as workerd keeps it. */
export interface Copy {
  tenant: string;
  folder: string;
  /** Of the object. */
  id: string;
}

/** What one engine found. */
export interface Look {
  unreadable?: string;
  /** `<table or view> <verb>` -> why the statement is not possible; empty: it is. */
  statements: Map<string, string>;
  /** Table -> rows and their digest, or why it has none. */
  tables: Map<string, string>;
  rows: number;
}

export interface Looks {
  /** By libSQL, which also puts the log into the file. @param from where the file was written */
  box(copy: Copy, from: 'box' | 'cluster'): Promise<Look>;
  node(copy: Copy): Promise<Look>;
  close(): Promise<void>;
}

const FILE_BYTES = 4 * 1024 ** 3;
/** For one database. ms */
const TIMEOUT_MS = 3_600_000;
const MOST_TEXT = 2_000;
/** How many things that a database would lose are named. */
const MOST_NAMED = 5;
const saidShape = z.union([
  z.tuple([z.literal('unreadable'), z.string()]),
  z.tuple([z.literal('statement'), z.string(), z.string(), z.string()]),
  z.tuple([z.literal('table'), z.string(), z.int().min(0), z.string()]),
]);

/** Of the object that has the database of this id, as workerd derives it. */
export function databaseObject(database: string): string {
  const key = createHash('sha256').update(DATABASES_ID).digest();
  const digest = (of: string | Buffer) => createHmac('sha256', key).update(of).digest().subarray(0, 16);
  const name = digest(database);
  return Buffer.concat([name, digest(name)]).toString('hex');
}

export function copyFileOf({ folder, id }: Copy): string {
  return path.join(folder, DATABASES_ID, `${id}.sqlite`);
}

/** @param binary of workerd @param folder for programs of its own */
export async function openLooks(sandbox: Sandbox, binary: string, folder: string): Promise<Looks> {
  const [program, worker] = await Promise.all([bundled('look-box.ts', 'node'), bundled('look-node.js', 'neutral')]);
  const place = await mkdtemp(path.join(folder, 'look-'));
  // Of no secret, and for a process of any user.
  await chmod(place, 0o755);
  await writeFile(path.join(place, 'look.js'), worker, { mode: 0o644 });
  const app: Bind = { from: place, to: '/app' };
  const native: Bind = { from: nativeBinding(), to: '/app-native/libsql.node' };
  const run = async ({ tenant, folder: copies }: Copy, reader: CopiedDatabases['reader']) =>
    lookOf(await runOnCopies(sandbox, { tenant, folder: copies, reader, fileBytes: FILE_BYTES, timeout: TIMEOUT_MS }));
  return {
    box: (copy, from) =>
      run(copy, (data) => ({
        program: process.execPath,
        args: [
          '--input-type=module',
          '-e',
          program,
          `${data}/${DATABASES_ID}/${copy.id}.sqlite`,
          sandbox.inside(native),
          from,
        ],
        binds: [native],
        needs: [native.from],
        profile: 'database',
      })),
    async node(copy) {
      await writeFile(
        path.join(place, 'look.capnp'),
        configOf(sandbox.inside({ from: copy.folder, to: '/data' }), copy.id),
      );
      return run(copy, () => ({
        program: binary,
        args: ['test', '--experimental', `${sandbox.inside(app)}/look.capnp`],
        binds: [app],
        profile: 'objects',
      }));
    },
    close: () => rm(place, { recursive: true, force: true }),
  };
}

/** What the database could do or had where it was, and cannot or has not where it goes, for people. */
export function lostBetween(from: Look, to: Look): string[] {
  if (to.unreadable !== undefined) return [`it cannot be opened: ${shown(to.unreadable)}`];
  const lost: string[] = [];
  for (const [what, failure] of from.statements) {
    const there = to.statements.get(what);
    if (failure === '' && there !== '') lost.push(`${shown(what)}: ${shown(there ?? 'it is missing')}`);
  }
  for (const name of new Set([...from.tables.keys(), ...to.tables.keys()])) {
    const [here, there] = [from.tables.get(name), to.tables.get(name)];
    if (here !== there)
      lost.push(
        `${shown(name)}: its rows read ${shown(there ?? '(missing)')} instead of ${shown(here ?? '(missing)')}`,
      );
  }
  if (from.unreadable !== undefined) lost.push(`it cannot be opened where it is: ${shown(from.unreadable)}`);
  return lost.length > MOST_NAMED ? [...lost.slice(0, MOST_NAMED), `and ${lost.length - MOST_NAMED} more`] : lost;
}

function lookOf(text: string): Look {
  const look: Look = { statements: new Map(), tables: new Map(), rows: 0 };
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const said = saidShape.parse(JSON.parse(line));
    if (said[0] === 'unreadable') look.unreadable = said[1];
    else if (said[0] === 'statement') {
      const [, name, verb, failure] = said;
      // A wide table has several updates.
      look.statements.set(`${name} ${verb}`, failure || (look.statements.get(`${name} ${verb}`) ?? ''));
    } else {
      const [, name, rows, digest] = said;
      look.tables.set(name, `${rows} rows ${digest}`);
      look.rows += rows;
    }
  }
  return look;
}

async function bundled(entry: string, platform: 'node' | 'neutral'): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [path.join(import.meta.dirname, entry)],
    bundle: true,
    write: false,
    minify: true,
    format: 'esm',
    platform,
    external: ['cloudflare:workers', 'node:*'],
    logLevel: 'silent',
  });
  return outputFiles[0]?.text ?? '';
}

/** @param disk folder of the copy, as it is seen inside */
function configOf(disk: string, id: string): string {
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (services = [
  (name = "main", worker = .main),
  (name = "disk", disk = (path = ${JSON.stringify(disk)}, writable = true)),
  (name = "internet", network = (allow = []))]);
const main :Workerd.Worker = (
  modules = [(name = "look.js", esModule = embed "look.js")],
  compatibilityDate = "2026-11-01",
  compatibilityFlags = ["nodejs_compat"],
  durableObjectNamespaces = [(className = "Database", uniqueKey = "${DATABASES_ID}", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "DATABASES", durableObjectNamespace = "Database"), (name = "ID", text = "${id}")]);
`;
}

/** A name or a message of a tenant's, for a terminal. */
function shown(text: string): string {
  return JSON.stringify(text.slice(0, MOST_TEXT)).slice(1, -1);
}
