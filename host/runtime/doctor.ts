/**
 * Tests the sandbox by trying to break it: runs a hostile program in it, once as a handler's process, once as a database's.
 */
import { chownSync, mkdirSync, mkdtempSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Bind, Sandbox } from '../sandbox/confinement.ts';
import { readLines } from '../sandbox/flood-gate.ts';
import { findProgram } from '../sandbox/programs.ts';
import { type ConfinedProcess, spawnConfined } from '../sandbox/spawn.ts';
import { randomUser } from '../sandbox/users.ts';
import { Problem } from '../shared/problem.ts';
import { callAttempts, DOCTOR_PROGRAM, type Report, type Targets } from './doctor-program.ts';

export interface Attempt extends Report {
  /** Which kind of process tried it. */
  as: 'handler' | 'database';
}

const OPEN_FILES = 512;
const TIMEOUT_MS = 30_000;

/**
 * @returns every attempt with what came of it
 * @throws Problem conflict without a sandbox: unconfined, the attempts would succeed, and change this machine
 * @throws Error when the hostile program itself did not run
 */
export async function tryToBreak(sandbox: Sandbox): Promise<Attempt[]> {
  if (sandbox.level === 'none') {
    throw new Problem(
      'conflict',
      'There is no sandbox to test: runtime.sandbox is "none", so tenants can do whatever the host can. Set it to "auto".',
    );
  }
  const folder = mkdtempSync(path.join(tmpdir(), 'turnpike-doctor-'));
  const bait = path.join(folder, 'bait');
  mkdirSync(bait);
  writeFileSync(path.join(bait, 'file'), 'not for you', { mode: 0o644 });
  const abstract = `turnpike-doctor-${process.pid}`;
  const socket = path.join(bait, 'other.sock');
  const servers = [net.createServer(), net.createServer(), net.createServer()] as const;
  try {
    await Promise.all([
      listen(servers[0], { host: '127.0.0.1', port: 0 }),
      listen(servers[1], { path: `\0${abstract}` }),
      listen(servers[2], { path: socket }),
    ]);
    const port = (servers[0].address() as net.AddressInfo).port;
    const attempts: Attempt[] = [];
    for (const as of ['handler', 'database'] as const) {
      const own = path.join(folder, as);
      mkdirSync(own, { mode: 0o700 });
      const uid = randomUser();
      // As in earnest: the folder that a program may write to is its user's.
      if (uid !== undefined) chownSync(own, uid, uid);
      const reports = await run(sandbox, as, own, uid, {
        file: path.join(bait, 'file'),
        folder: bait,
        pid: process.pid,
        pidNamespace: readlinkSync('/proc/self/ns/pid'),
        port,
        abstract,
        socket,
        variable: 'PATH',
        openFiles: OPEN_FILES,
      });
      attempts.push(...[...reports, ...(await makeCalls(sandbox, as, uid))].map((report) => ({ as, ...report })));
    }
    return attempts;
  } finally {
    for (const server of servers) server.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function run(
  sandbox: Sandbox,
  as: Attempt['as'],
  own: string,
  uid: number | undefined,
  bait: Omit<Targets, 'writable' | 'mayWrite' | 'programs'>,
): Promise<Report[]> {
  const writable: Bind = { from: own, to: '/run/own', writable: true };
  const unshare: Bind = { from: findProgram('unshare', 'util-linux'), to: '/tools/unshare' };
  const mount: Bind = { from: findProgram('mount', 'mount'), to: '/tools/mount' };
  const handler = as === 'handler';
  const child = await spawnConfined(sandbox, {
    program: process.execPath,
    args: ['--input-type=commonjs', '--eval', DOCTOR_PROGRAM],
    binds: [writable, unshare, mount],
    needs: [unshare.from, mount.from],
    uid,
    profile: handler ? 'worker' : 'database',
    limits: { openFiles: bait.openFiles, fileBytes: handler ? 0 : 1 << 20 },
  });
  const targets: Targets = {
    ...bait,
    writable: sandbox.inside(writable),
    mayWrite: !handler,
    programs: { unshare: sandbox.inside(unshare), mount: sandbox.inside(mount) },
  };
  return reportsOf(child, JSON.stringify(targets));
}

/** System calls that no program inside makes; none is tried where there is no Perl. */
async function makeCalls(sandbox: Sandbox, as: Attempt['as'], uid: number | undefined): Promise<Report[]> {
  let perl: string;
  try {
    perl = findProgram('perl', 'perl-base');
  } catch {
    return [];
  }
  const child = await spawnConfined(sandbox, {
    program: perl,
    args: ['-e', callAttempts()],
    binds: [],
    uid,
    profile: as === 'handler' ? 'worker' : 'database',
    limits: { openFiles: OPEN_FILES, fileBytes: 0 },
  });
  return reportsOf(child, '');
}

/** @throws Error when the program did not run */
async function reportsOf(child: ConfinedProcess, input: string): Promise<Report[]> {
  const reports: Report[] = [];
  const errors: string[] = [];
  readLines(child.stdout, { onLine: (line) => reports.push(JSON.parse(line) as Report), onDropped: () => undefined });
  readLines(child.stderr, { onLine: (line) => errors.push(line), onDropped: () => undefined });
  child.stdin.end(input);
  const timer = setTimeout(() => child.kill(), TIMEOUT_MS);
  await child.ended;
  clearTimeout(timer);
  if (reports.length === 0) throw new Error(`the trial program did not run: ${errors.join(' ').slice(0, 500)}`);
  return reports;
}

function listen(server: net.Server, options: net.ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options, resolve);
  });
}
