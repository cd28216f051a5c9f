/** What is told when files or an S3 refuse a backup or what it brings back: their own words, and what to do. */
import { fullDisk } from '../shared/full-disk.ts';
import { Problem } from '../shared/problem.ts';

/**
 * @param what came of it, as `No backup was made`
 * @param place that is written to
 * @throws Problem disk_full or invalid_config instead of an error of the system or of S3; others as they are
 */
export async function tellingPlace<T>(what: string, place: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Problem || !isRefusal(error)) throw error;
    throw new Problem(
      fullDisk(error) ? 'disk_full' : 'invalid_config',
      `${what}: ${error.message}. Make room in ${place}, give the right to write there, or name another place.`,
      { cause: error },
    );
  }
}

/** Errors of the system and of S3 carry a code of theirs. */
function isRefusal(error: unknown): error is Error {
  return error instanceof Error && typeof (error as { code?: unknown }).code === 'string';
}
