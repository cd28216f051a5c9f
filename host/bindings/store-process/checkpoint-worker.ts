/** The thread that brings logs into their files, for checkpoints.ts. */
import { parentPort } from 'node:worker_threads';
import Libsql from 'libsql';
import type { CheckpointAnswer, CheckpointJob } from './checkpoints.ts';
import type { Numbered } from './thread.ts';

parentPort?.on('message', (jobs: Numbered<CheckpointJob>[]) => {
  for (const { id, path } of jobs) {
    const answer: Numbered<CheckpointAnswer> = { id };
    try {
      checkpoint(path);
    } catch (error) {
      answer.error = (error as Error).message;
    }
    parentPort?.postMessage([answer]);
  }
});

/** As much as goes without waiting for anybody: writers write on behind it. */
function checkpoint(path: string): void {
  const connection = new Libsql(path);
  try {
    // A statement of its own would hold the connection, and its files, until it is collected.
    connection.exec('PRAGMA synchronous=FULL; PRAGMA wal_checkpoint(PASSIVE)');
  } finally {
    connection.close();
  }
}
