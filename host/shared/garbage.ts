/** Collecting garbage now, for what V8 does not see: memory that its own heap only points to. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** As of V8's own `gc()`. */
export interface Collection {
  type: 'minor' | 'major';
  flavor?: 'regular' | 'last-resort';
}

let collect: ((how: Collection) => void) | undefined;

/** Stops the process: for 1 to 2 ms when minor, for some tens when major. */
export function collectGarbage(how: Collection): void {
  if (!collect) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as (how: Collection) => void;
  }
  collect(how);
}
