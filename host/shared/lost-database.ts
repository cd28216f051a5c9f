/** What it is called that the database of several nodes does not answer, or not now: by PostgreSQL, and by the system. */

/**
 * A server that ends (57P01 to 57P05), a connection that is lost (08…; ECONNRESET and the like; without a code, from the
 * package `pg`), a standby in place of the primary (25006), a lock that is not had in time (55P03). SQLSTATE:
 * postgresql.org/docs/current/errcodes-appendix.html.
 */
const LOST = /^POSTGRES_(57P0\d|08[0-9A-Z]{3}|25006|55P03|E[A-Z]{3,}|UNKNOWN)$/;

/** Whether the error, or one of its causes, says so. */
export function lostDatabase(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (LOST.test(String((cause as NodeJS.ErrnoException).code))) return true;
  return false;
}
