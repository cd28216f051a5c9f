/**
 * Runs a program on copies of SQLite files that workerd wrote for a tenant. A tenant that has broken out of JavaScript could
 * have written anything into them, so they are opened as databases in a sandbox only, and whoever calls checks what it prints.
 */
import { chownSync, lchownSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { Bind, Sandbox } from '../../sandbox/confinement.ts';
import { spawnConfined } from '../../sandbox/spawn.ts';
import { tenantUser } from '../../sandbox/users.ts';

export interface CopiedDatabases {
  tenant: string;
  /** Of the copies; the sandbox may write to it. */
  folder: string;
  /** An ES module for Node; its argument is the folder. */
  program: string;
  /** The largest file. */
  fileBytes: number;
  /** After which it is ended, ms. */
  timeout: number;
}

/** @returns what the program prints @throws Error where it fails, or takes too long */
export async function runOnCopies(
  sandbox: Sandbox,
  { tenant, folder, program, fileBytes, timeout }: CopiedDatabases,
): Promise<string> {
  const uid = tenantUser(tenant);
  if (uid !== undefined) {
    chownSync(folder, uid, uid);
    for (const name of readdirSync(folder)) lchownSync(path.join(folder, name), uid, uid);
  }
  const bind: Bind = { from: folder, to: '/data', writable: true };
  const child = await spawnConfined(sandbox, {
    program: process.execPath,
    args: ['--disable-warning=ExperimentalWarning', '--input-type=module', '-e', program, sandbox.inside(bind)],
    binds: [bind],
    uid,
    profile: 'database',
    limits: { openFiles: 64, processes: 64, fileBytes },
  });
  const timer = setTimeout(() => child.kill(), timeout);
  const [said, failure, { code }] = await Promise.all([text(child.stdout), text(child.stderr), child.ended]);
  clearTimeout(timer);
  if (code !== 0) throw new Error(`the databases in ${folder} cannot be read: ${failure.slice(0, 500) || 'no answer'}`);
  return said;
}
