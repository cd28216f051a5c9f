/**
 * A copy of a tenant's SQL database while its process writes. The file is the tenant's and is not opened as a database
 * here: bytes are copied, and the rules of SQLite's write-ahead log make them one moment. As long as no checkpoint
 * writes to the database file, it and the log together are consistent, and a log that is cut off ends at a commit.
 */

import { rm, stat } from 'node:fs/promises';
import { request } from 'node:http';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { copyDurably } from '../../shared/durable-files.ts';
import { Problem } from '../../shared/problem.ts';
import { FILE } from './files.ts';

const ATTEMPTS = 20;
/** The kernel's time stamps move in steps of up to 10 ms; a change within the step of the last one would not show. */
const TIME_STEP_MS = 30;
const HOLD_TIMEOUT_MS = 5_000;

/**
 * @param from folder of the database; nothing is copied where there is none
 * @param socket of its SQL process, where one runs: it is asked to leave the database file alone meanwhile
 * @throws Problem overloaded when the database changed under every attempt
 */
export async function copySql(from: string, to: string, socket: string | undefined): Promise<void> {
  const database = path.join(from, FILE);
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    // A process that does not answer may be busy with a long query, or gone: then the file tells by itself.
    if (socket !== undefined) await tell(socket, 'begin').catch(() => undefined);
    try {
      const before = await settled(database);
      if (before === undefined) return;
      await rm(to, { recursive: true, force: true });
      await copyDurably(database, path.join(to, FILE));
      await copyDurably(`${database}-wal`, path.join(to, `${FILE}-wal`)).catch((error) => {
        if (error.code !== 'ENOENT') throw error;
      });
      if ((await stampOf(database)) === before) return;
    } catch (error) {
      // Removed between two steps, with its tenant.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    } finally {
      if (socket !== undefined) await tell(socket, 'end').catch(() => undefined);
    }
    await delay(TIME_STEP_MS * 2 ** Math.min(attempt, 6));
  }
  throw new Problem(
    'overloaded',
    'A tenant writes to its database faster than the backup can copy it; try the backup again later.',
  );
}

/** Identity, size and time of the last change, once that is long enough ago for the next change to show. */
async function settled(file: string): Promise<string | undefined> {
  for (;;) {
    const found = await stat(file).catch(() => undefined);
    if (found === undefined) return undefined;
    const age = Date.now() - found.mtimeMs;
    if (age > TIME_STEP_MS || age < 0) return stampOf(file);
    await delay(TIME_STEP_MS);
  }
}

async function stampOf(file: string): Promise<string | undefined> {
  const found = await stat(file, { bigint: true }).catch(() => undefined);
  return found && `${found.ino} ${found.size} ${found.mtimeNs}`;
}

function tell(socketPath: string, step: 'begin' | 'end'): Promise<void> {
  return new Promise((resolve, reject) => {
    const call = request(
      {
        socketPath,
        method: 'POST',
        path: `/backup/${step}`,
        timeout: HOLD_TIMEOUT_MS,
        headers: { connection: 'close' },
      },
      (response) => {
        response.resume();
        response.on('end', resolve);
      },
    );
    call.on('timeout', () => call.destroy(new Error('timeout')));
    call.on('error', reject);
    call.end();
  });
}
