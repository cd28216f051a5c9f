/**
 * Objects of a box that nobody runs, made ready to be taken elsewhere: what is in the log of a database goes into its file,
 * and alarms are read. A tenant that has broken out of JavaScript could have written anything into the files, so they are
 * copied, opened as databases in a sandbox only, and what comes out is checked.
 */
import { copyFile, lstat, readdir } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import type { Sandbox } from '../../sandbox/confinement.ts';
import { nodeReader, runOnCopies } from './copied-databases.ts';

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
const FILE_BYTES = 4 * 1024 ** 3;
/** For all objects of a class. ms */
const TIMEOUT_MS = 3_600_000;
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
 * @throws Error where the folder has anything but files of objects
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
      throw new Error(`${file} is not a file of an object`);
    await copyFile(file, path.join(to, name));
  }
  const copies = { tenant, folder: to, reader: nodeReader(PROGRAM), fileBytes: FILE_BYTES, timeout: TIMEOUT_MS };
  const said = (await runOnCopies(sandbox, copies)).split('\n').filter((line) => line !== '');
  const alarms = said.map((line) => {
    const [id, at, name] = alarmShape.parse(JSON.parse(line));
    return { id, at, name };
  });
  const ids = names.flatMap((name) => (name.endsWith('.sqlite') ? (FILE.exec(name)?.[1] ?? []) : []));
  return { objects: ids.map((id) => ({ id, file: path.join(to, `${id}.sqlite`) })), alarms };
}
