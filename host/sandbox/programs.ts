/** Finds the system's programs that sandboxes are made with. */
import { accessSync, constants } from 'node:fs';
import path from 'node:path';

/** System folders only: the sandbox must not depend on who set PATH. */
const FOLDERS = ['/usr/bin', '/bin', '/usr/sbin', '/sbin', '/usr/local/bin'];

/** @throws Error that names the Debian package to install */
export function findProgram(name: string, debianPackage: string): string {
  for (const folder of FOLDERS) {
    const file = path.join(folder, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // The next folder.
    }
  }
  throw new Error(`${name} is not installed (apt-get install ${debianPackage})`);
}
