/** What a full disk is called: by the system, by SQLite, and in the causes of what was thrown for it. */

/** Of the system (errno) and of SQLite, which has a code of its own for the log's index (sqlite.org/rescode.html). */
const DISK_IS_FULL = new Set(['ENOSPC', 'EDQUOT', 'SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE']);

/** What says so, of an error and its causes. */
export function fullDisk(error: unknown): Error | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (DISK_IS_FULL.has(String((cause as NodeJS.ErrnoException).code))) return cause;
  return undefined;
}
