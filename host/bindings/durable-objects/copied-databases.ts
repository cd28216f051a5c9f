/**
 * Runs a program on copies of SQLite files that workerd wrote for a tenant. A tenant that has broken out of JavaScript could
 * have written anything into them, so they are opened as databases in a sandbox only, and whoever calls checks what it prints.
 */
import { chownSync, lchownSync, readdirSync } from 'node:fs';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { Bind, Confinement, Sandbox } from '../../sandbox/confinement.ts';
import { spawnConfined } from '../../sandbox/spawn.ts';
import { tenantUser } from '../../sandbox/users.ts';

export interface CopiedDatabases {
  tenant: string;
  /** Of the copies; the sandbox may write to it. */
  folder: string;
  /** What reads them. @param data the folder, as it is seen inside */
  reader(data: string): Pick<Confinement, 'program' | 'args' | 'binds' | 'needs' | 'profile'>;
  /** The largest file. */
  fileBytes: number;
  /** After which it is ended, ms. */
  timeout: number;
}

/** What is printed of one database is a few lines for each of its tables. */
const MOST_PRINTED = 64 * 1_048_576;

/** @param program an ES module for Node; its argument is the folder */
export function nodeReader(program: string): CopiedDatabases['reader'] {
  return (data) => ({
    program: process.execPath,
    args: ['--disable-warning=ExperimentalWarning', '--input-type=module', '-e', program, data],
    binds: [],
    profile: 'database',
  });
}

/** @returns what the program prints @throws Error where it fails, prints too much, or takes too long */
export async function runOnCopies(
  sandbox: Sandbox,
  { tenant, folder, reader, fileBytes, timeout }: CopiedDatabases,
): Promise<string> {
  const uid = tenantUser(tenant);
  if (uid !== undefined) {
    chownSync(folder, uid, uid);
    for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }))
      lchownSync(path.join(folder, name), uid, uid);
  }
  const bind: Bind = { from: folder, to: '/data', writable: true };
  const { binds, ...program } = reader(sandbox.inside(bind));
  const child = await spawnConfined(sandbox, {
    ...program,
    binds: [bind, ...binds],
    uid,
    limits: { openFiles: 64, fileBytes },
  });
  const timer = setTimeout(() => child.kill(), timeout);
  const printed = (stream: Readable) =>
    text(bounded(stream, MOST_PRINTED)).catch((error: Error) => {
      child.kill();
      return error.message;
    });
  const [said, failure, { code }] = await Promise.all([printed(child.stdout), printed(child.stderr), child.ended]);
  clearTimeout(timer);
  if (code !== 0) throw new Error(`the databases in ${folder} cannot be read: ${failure.slice(0, 500) || 'no answer'}`);
  // What is read of it from here on is read as the host.
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true }))
    if (!entry.isFile() && !entry.isDirectory())
      throw new Error(`${path.join(entry.parentPath, entry.name)} is no file`);
  return said;
}

/** @throws Error behind so many bytes */
async function* bounded(stream: Readable, most: number): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const piece of stream) {
    bytes += (piece as Buffer).length;
    if (bytes > most) throw new Error(`it printed more than ${most} bytes`);
    yield piece as Buffer;
  }
}
