/**
 * Reads the next alarm from copies of workerd's lists. A tenant that has broken out of JavaScript could have written
 * anything into them, so they are opened as databases in a sandbox only, and what comes out is checked.
 */
import { chownSync, lchownSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { Bind, Sandbox } from '../../sandbox/confinement.ts';
import { spawnConfined } from '../../sandbox/spawn.ts';
import { tenantUser } from '../../sandbox/users.ts';

/** The table is workerd's own (1.20261117.1): src/workerd/server/alarm-scheduler.c++; times are in ns. */
const PROGRAM = `
import { DatabaseSync } from 'node:sqlite';
import { readdirSync } from 'node:fs';
const [folder] = process.argv.slice(1);
let next = Infinity;
for (const name of readdirSync(folder)) {
  if (!name.endsWith('.sqlite')) continue;
  const database = new DatabaseSync(folder + '/' + name, { allowExtension: false });
  const { at } = database.prepare('SELECT min(scheduled_time) / 1000000 AS at FROM _cf_ALARM').get();
  if (at !== null) next = Math.min(next, Number(at));
  database.close();
}
console.log(next === Infinity ? 'none' : String(Math.round(next)));
`;
const TIMEOUT_MS = 10_000;
const LIMITS = { openFiles: 64, processes: 64, fileBytes: 64 * 1_048_576 };

/**
 * @param folder of the copies; the sandbox may write to it
 * @returns real time, ms; undefined: there is none
 * @throws Error
 */
export async function readNextAlarm(sandbox: Sandbox, tenant: string, folder: string): Promise<number | undefined> {
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
  const timer = setTimeout(() => child.kill(), TIMEOUT_MS);
  const [said, failure, { code }] = await Promise.all([text(child.stdout), text(child.stderr), child.ended]);
  clearTimeout(timer);
  const answer = said.trim();
  if (code === 0 && answer === 'none') return undefined;
  if (code === 0 && /^\d{1,16}$/.test(answer)) return Number(answer);
  throw new Error(`the list of alarms cannot be read: ${failure.slice(0, 500)}`);
}
