/**
 * Makes the engine let go of closed databases. libsql 0.5.29 cannot finalize a statement: a closed connection and its
 * file descriptors live on until the garbage collector finds the statements, which on a quiet machine takes hours,
 * because their memory is not the collector's.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

let collect: (() => void) | undefined;

/** Stops the process for some milliseconds. */
export function collectGarbage(): void {
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
  }
  collect();
}
