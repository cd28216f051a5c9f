/**
 * Confinement of decoders: what they read comes from strangers, and decoders have bugs. With bubblewrap they see the
 * system's programs, the job's own folder and no network; without it they run as the engine's user.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { findProgram } from './programs.ts';

export interface Command {
  program: string;
  args: string[];
}

/** @param readable files and folders beside the system's that the program needs */
export type Confine = (command: Command, folder: string, readable?: string[]) => Command;

export interface Confinement {
  name: 'bubblewrap' | 'none';
  confine: Confine;
}

const SYSTEM = ['/usr', '/lib', '/lib64', '/bin', '/etc/alternatives', '/etc/ld.so.cache'];

/** Tries whether this machine lets it: containers often forbid namespaces. */
export async function openConfinement(): Promise<Confinement> {
  const bwrap = await findProgram('bwrap');
  const none: Confinement = { name: 'none', confine: (command) => command };
  if (bwrap === undefined) return none;
  const confine: Confine = ({ program, args }, folder, readable = []) => ({
    program: bwrap,
    args: [...options(folder, readable), '--', program, ...args],
  });
  const attempt = confine({ program: '/usr/bin/true', args: [] }, '/tmp');
  const { status } = spawnSync(attempt.program, attempt.args, { stdio: 'ignore', timeout: 5000 });
  return status === 0 ? { name: 'bubblewrap', confine } : none;
}

function options(folder: string, readable: string[]): string[] {
  const seen = [...SYSTEM, ...readable].filter((path) => existsSync(path));
  return [
    ...['--unshare-all', '--die-with-parent', '--new-session', '--cap-drop', 'ALL', '--clearenv'],
    ...['--setenv', 'PATH', '/usr/bin:/bin', '--setenv', 'HOME', folder],
    // Files of /proc/sys are for user 0 of the machine to write, with capabilities or without; that may be the engine's.
    ...['--proc', '/proc', '--remount-ro', '/proc', '--dev', '/dev', '--tmpfs', '/tmp'],
    ...seen.flatMap((path) => ['--ro-bind', path, path]),
    ...['--bind', folder, folder, '--chdir', folder],
  ];
}
