/** The thread that copies stores for a backup (backup.ts), so that the event loop of the storage process stays free. */
import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { parentPort } from 'node:worker_threads';
import Libsql from 'libsql';
import type { CopyJob, CopyReply } from './backup.ts';
import { copyExtents, isExtent } from './blobs/extents.ts';

parentPort?.on('message', (job: CopyJob) => {
  let reply: CopyReply;
  try {
    reply = { bytes: copy(job) };
  } catch (error) {
    reply = { error: (error as Error).message };
  }
  parentPort?.postMessage(reply);
});

function copy(job: CopyJob): number {
  // An earlier copy may be there, with blobs that are no longer named.
  rmSync(dirname(job.target), { recursive: true, force: true });
  mkdirSync(dirname(job.target), { recursive: true });
  copyDatabase(job.database, job.target);
  let bytes = statSync(job.target).size;
  const names = namesIn(job);
  const extents = names.filter(isExtent);
  if (extents.length > 0) bytes += copyExtents(job.extents, job.extentsTarget, extents);
  // Not where objects live in S3.
  if (!existsSync(job.blobs)) return bytes;
  mkdirSync(job.blobsTarget, { recursive: true });
  for (const name of names) {
    if (isExtent(name)) continue;
    const target = join(job.blobsTarget, name);
    linkOrCopy(join(job.blobs, name), target);
    bytes += statSync(target).size;
  }
  return bytes;
}

function namesIn(job: CopyJob): string[] {
  const copied = new Libsql(job.target);
  try {
    return (copied.prepare(job.named).raw().all([]) as [string][]).map(([name]) => name);
  } finally {
    copied.close();
  }
}

/** All that was committed at one moment, in one file without a log. */
function copyDatabase(source: string, target: string): void {
  const connection = new Libsql(source);
  try {
    connection.exec('PRAGMA busy_timeout=30000');
    connection.prepare('VACUUM INTO ?').run([target]);
  } finally {
    connection.close();
  }
  const descriptor = openSync(target, 'r');
  fsyncSync(descriptor);
  closeSync(descriptor);
}

/** Blobs never change, so a second name is as good as a copy where both are on one file system. */
function linkOrCopy(source: string, target: string): void {
  try {
    linkSync(source, target);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code !== 'EXDEV' && code !== 'EPERM' && code !== 'EMLINK') throw error;
    copyFileSync(source, target, constants.COPYFILE_FICLONE);
    const descriptor = openSync(target, 'r');
    fsyncSync(descriptor);
    closeSync(descriptor);
  }
}
