/** The registry as of one moment, while the host writes to it. In a thread: the copy is synchronous in libSQL. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { Worker } from 'node:worker_threads';
import { syncFile } from '../shared/durable-files.ts';

/** Plain JavaScript, because a thread that strips types starts slowly; `VACUUM INTO` reads one snapshot. */
const THREAD = `
const { workerData, parentPort } = require('node:worker_threads');
const Database = require(workerData.libsql);
const connection = new Database(workerData.from);
connection.exec('PRAGMA busy_timeout=30000');
connection.prepare('VACUUM INTO ?').run([workerData.to]);
connection.close();
parentPort.postMessage('done');
`;

export async function copyRegistry(from: string, to: string): Promise<void> {
  if (!existsSync(from)) return;
  await mkdir(path.dirname(to), { recursive: true, mode: 0o700 });
  const { createRequire } = await import('node:module');
  const libsql = createRequire(import.meta.url).resolve('libsql');
  const thread = new Worker(THREAD, { eval: true, workerData: { from, to, libsql } });
  try {
    await new Promise((resolve, reject) => {
      thread.once('message', resolve);
      thread.once('error', reject);
      thread.once('exit', (code) => reject(new Error(`the copy of the registry ended early (${code})`)));
    });
  } finally {
    await thread.terminate();
  }
  await syncFile(to);
}
