/**
 * Closes what was left open by whoever started this process, such as the descriptor 200 of a script that holds a lock.
 * Programs that this one starts would have it too, tenants among them. Node marks the first few descriptors to be
 * closed in children, up to the first gap, and all that it opens itself; the rest is nobody's here.
 */
import { closeSync, readdirSync, readFileSync } from 'node:fs';

/** As /proc shows it, octal (fcntl.h of Linux). */
const O_CLOEXEC = 0o2000000;

/** To be called before anything is opened on behalf of a child. Does nothing where there is no /proc. */
export function closeInherited(): void {
  for (const descriptor of list().map(Number)) if (descriptor > 2 && goesOn(descriptor)) closeSync(descriptor);
}

function list(): string[] {
  try {
    return readdirSync('/proc/self/fd');
  } catch {
    return [];
  }
}

/** Whether children get it. */
function goesOn(descriptor: number): boolean {
  try {
    const [, flags = ''] = /^flags:\s*([0-7]+)/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8')) ?? [];
    return (Number.parseInt(flags, 8) & O_CLOEXEC) === 0;
  } catch {
    // It was the listing's own.
    return false;
  }
}
