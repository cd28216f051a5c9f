/**
 * How processes that run tenants' code or tenants' SQL are confined: chooses a way that works on this machine, and
 * turns "this program with these files" into the command line that starts it so.
 */
import { spawn } from 'node:child_process';
import type { Writable } from 'node:stream';
import { Problem } from '../shared/problem.ts';
import { bwrapCommand } from './bwrap.ts';
import { type Sandbox, type SandboxLevel, SECCOMP_FD } from './confinement.ts';
import { type Libraries, librariesOf } from './libraries.ts';
import { unshareCommand } from './unshare.ts';
import { tenantUser, userCost } from './users.ts';

/** Programs that the ways need, and the packages that carry them on Debian. */
const ADVICE =
  'Install bubblewrap (apt-get install bubblewrap), or allow user namespaces for unshare, setpriv and perl, on a kernel with CONFIG_SECCOMP_FILTER (in a container, config/CONTAINER.md says what it must be allowed)';

const TRIAL_MS = 10_000;

/**
 * Picks the strongest way that works here, by running a program in it.
 * @param wanted `auto`, or the one way that the operator insists on
 * @throws Problem start_failed when it does not work; unconfined only with `none`
 */
export async function detectSandbox(wanted: 'auto' | SandboxLevel): Promise<Sandbox> {
  if (wanted === 'none') return unconfined();
  const reasons: string[] = [];
  for (const level of wanted === 'auto' ? (['bwrap', 'unshare'] as const) : [wanted]) {
    const sandbox = confined(level);
    const failure = await tryOut(sandbox);
    if (failure === undefined) return sandbox;
    reasons.push(`${level}: ${failure}`);
  }
  throw new Problem(
    'start_failed',
    `No sandbox works on this machine (${reasons.join('; ')}). ${ADVICE}; or set runtime.sandbox to "none" and run tenants' code without one.`,
  );
}

function confined(level: 'bwrap' | 'unshare'): Sandbox {
  const known = new Map<string, Promise<Libraries>>();
  const libraries = async (programs: string[]): Promise<string[]> => {
    const found = await Promise.all(
      programs.map((program) => {
        const pending = known.get(program) ?? librariesOf(program);
        known.set(program, pending);
        return pending;
      }),
    );
    return [...new Set(found.flat())];
  };
  return {
    level,
    depth: level === 'bwrap' ? 2 : 1,
    detail: `${level === 'bwrap' ? 'bubblewrap' : 'unshare'}: own namespaces, no network, no capabilities, system call filter, ${userCost()}`,
    inside: (bind) => bind.to,
    prepare: (programs) => libraries(programs),
    command: (confinement) =>
      level === 'bwrap' ? bwrapCommand(confinement, libraries) : unshareCommand(confinement, libraries),
  };
}

function unconfined(): Sandbox {
  return {
    level: 'none',
    depth: 0,
    detail: 'none: tenants can read this machine and reach its network; never with strangers as tenants',
    inside: (bind) => bind.from,
    prepare: async () => undefined,
    command: async ({ program, args }) => ({ file: program, args, seccomp: undefined }),
  };
}

/** @returns why it does not work, or undefined */
async function tryOut(sandbox: Sandbox): Promise<string | undefined> {
  try {
    const { file, args, seccomp } = await sandbox.command({
      program: process.execPath,
      args: ['-e', 'process.exit(7)'],
      binds: [],
      uid: tenantUser('trial'),
      profile: 'database',
      limits: { openFiles: 256, fileBytes: 0 },
    });
    return await new Promise((resolve) => {
      const child = spawn(file, args, {
        stdio: ['ignore', 'ignore', 'pipe', 'ignore', 'pipe'],
        timeout: TRIAL_MS,
        killSignal: 'SIGKILL',
      });
      let said = '';
      child.stderr?.on('data', (chunk: Buffer) => {
        if (said.length < 10_000) said += chunk.toString();
      });
      const filter = child.stdio[SECCOMP_FD] as Writable | null;
      filter?.on('error', () => undefined);
      filter?.end(seccomp);
      child.once('error', (error) => resolve(error.message));
      child.once('close', (code, signal) => resolve(code === 7 ? undefined : explain(said, signal)));
    });
  } catch (error) {
    return (error as Error).message;
  }
}

/** What is wrong with a machine whose trial failed. */
function explain(said: string, signal: string | null): string {
  if (/SECCOMP/i.test(said)) return 'the kernel takes no system call filter, and without one nothing is confined';
  if (said.trim() !== '') return said.trim().split('\n')[0] ?? '';
  return signal === null ? 'the trial program did not run' : `the trial program was ended by ${signal}`;
}
