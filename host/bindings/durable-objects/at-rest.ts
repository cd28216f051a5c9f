/**
 * Objects of a box that nobody runs, made ready to be taken elsewhere: what is in the log of a database goes into its file,
 * and alarms are read. A tenant that has broken out of JavaScript could have written anything into the files, so they are
 * copied, opened as databases in a sandbox only, and what comes out is checked.
 */
import { chownSync, lchownSync, readdirSync } from 'node:fs';
import { copyFile, lstat, readdir } from 'node:fs/promises';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import type { Bind, Sandbox } from '../../sandbox/confinement.ts';
import { spawnConfined } from '../../sandbox/spawn.ts';
import { tenantUser } from '../../sandbox/users.ts';

/** The table is workerd's own (1.20261117.1): src/workerd/server/alarm-scheduler.c++; times are in ns. */
const PROGRAM = `
import { DatabaseSync } from 'node:sqlite';
import { readdirSync } from 'node:fs';
const [folder] = process.argv.slice(1);
for (const name of readdirSync(folder)) {
  if (!name.endsWith('.sqlite')) continue;
  const database = new DatabaseSync(folder + '/' + name, { allowExtension: false });
  database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all();
  if (name === 'metadata.sqlite')
    for (const row of database.prepare('SELECT actor_id, scheduled_time / 1000000 AS at, actor_name FROM _cf_ALARM').iterate())
      console.log(JSON.stringify([row.actor_id, Number(row.at), row.actor_name ?? '']));
  database.close();
}
`;
const LIMITS = { openFiles: 64, processes: 64, fileBytes: 4 * 1024 ** 3 };
const FILE = /^([0-9a-f]{64})\.sqlite(-wal)?$/;
const ALARMS = /^metadata\.sqlite(-wal)?$/;
const SHARED_MEMORY = /\.sqlite-shm$/;
const alarmShape = z.tuple([z.string().regex(/^[0-9a-f]{64}$/), z.int().min(0), z.string().max(8_192)]);

export interface AtRest {
  id: string;
  /** With all there is of it in this one file. */
  file: string;
}

export interface AlarmAtRest {
  id: string;
  /** Real time, ms. */
  at: number;
  /** Of the object; empty: it has none. */
  name: string;
}

/**
 * @param folder of one class @param to an empty folder for copies
 * @throws Error for what is no file of an object
 */
export async function objectsAtRest(
  sandbox: Sandbox,
  tenant: string,
  folder: string,
  to: string,
): Promise<{ objects: AtRest[]; alarms: AlarmAtRest[] }> {
  const names = (await readdir(folder)).filter((name) => !SHARED_MEMORY.test(name));
  for (const name of names) {
    const file = path.join(folder, name);
    if (!(FILE.test(name) || ALARMS.test(name)) || !(await lstat(file)).isFile())
      throw new Error(`${file} is no file of an object`);
    await copyFile(file, path.join(to, name));
  }
  const said = await checkpoint(sandbox, tenant, to);
  const alarms = said.map((line) => {
    const [id, at, name] = alarmShape.parse(JSON.parse(line));
    return { id, at, name };
  });
  const ids = names.flatMap((name) => (name.endsWith('.sqlite') ? (FILE.exec(name)?.[1] ?? []) : []));
  return { objects: ids.map((id) => ({ id, file: path.join(to, `${id}.sqlite`) })), alarms };
}

async function checkpoint(sandbox: Sandbox, tenant: string, folder: string): Promise<string[]> {
  const uid = tenantUser(tenant);
  if (uid !== undefined) {
    chownSync(folder, uid, uid);
    for (const name of readdirSync(folder)) lchownSync(path.join(folder, name), uid, uid);
  }
  const bind: Bind = { from: folder, to: '/data', writable: true };
  const child = await spawnConfined(sandbox, {
    program: process.execPath,
    args: ['--disable-warning=ExperimentalWarning', '--input-type=module', '-e', PROGRAM, sandbox.inside(bind)],
    binds: [bind],
    uid,
    profile: 'database',
    limits: LIMITS,
  });
  const [said, failure, { code }] = await Promise.all([text(child.stdout), text(child.stderr), child.ended]);
  if (code !== 0) throw new Error(`the objects in ${folder} cannot be read: ${failure.slice(0, 500)}`);
  return said.split('\n').filter((line) => line !== '');
}
