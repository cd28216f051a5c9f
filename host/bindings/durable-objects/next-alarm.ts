/** Reads the next alarm from copies of workerd's lists, and checks what comes out. */
import type { Sandbox } from '../../sandbox/confinement.ts';
import { nodeReader, runOnCopies } from './copied-databases.ts';

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
const FILE_BYTES = 64 * 1_048_576;

/**
 * @param folder of the copies; the sandbox may write to it
 * @returns real time, ms; undefined: there is none
 * @throws Error
 */
export async function readNextAlarm(sandbox: Sandbox, tenant: string, folder: string): Promise<number | undefined> {
  const copies = { tenant, folder, reader: nodeReader(PROGRAM), fileBytes: FILE_BYTES, timeout: TIMEOUT_MS };
  const answer = (await runOnCopies(sandbox, copies)).trim();
  if (answer === 'none') return undefined;
  if (/^\d{1,16}$/.test(answer)) return Number(answer);
  throw new Error('the list of alarms cannot be read: it names no time');
}
