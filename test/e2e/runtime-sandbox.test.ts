/** The sandbox, attacked with the doctor's program and by watching what survives its owner. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { tryToBreak } from '../../host/runtime/doctor.ts';
import { sandboxFolders, startPrewarmedSandbox } from '../../host/runtime/prewarmed-sandbox.ts';
import { type Confinement, type Sandbox, SECCOMP_FD, USER_THREADS } from '../../host/sandbox/confinement.ts';
import { detectSandbox } from '../../host/sandbox/index.ts';
import { endLeftovers } from '../../host/sandbox/leftovers.ts';
import { spawnConfined } from '../../host/sandbox/spawn.ts';
import { tenantUser } from '../../host/sandbox/users.ts';
import { alive, commandOf, processTree } from '../bench/processes.ts';
import { until } from './support/until.ts';

const available = async (level: 'bwrap' | 'unshare') =>
  detectSandbox(level).then(
    (sandbox) => sandbox,
    () => undefined,
  );
const bwrap = await available('bwrap');
const unshare = await available('unshare');
const user = tenantUser('many-threads');

describe('escape attempts', () => {
  it.runIf(bwrap)('bubblewrap contains every one of them', async () => {
    const attempts = await tryToBreak(bwrap!);
    expect(attempts.length).toBeGreaterThan(50);
    expect(attempts.filter(({ contained }) => !contained)).toEqual([]);
  });

  it.runIf(unshare)('unshare contains every one of them', async () => {
    const attempts = await tryToBreak(unshare!);
    expect(attempts.length).toBeGreaterThan(50);
    expect(attempts.filter(({ contained }) => !contained)).toEqual([]);
  });

  it('without a sandbox nothing is tried, since it would work', async () => {
    await expect(tryToBreak(await detectSandbox('none'))).rejects.toMatchObject({ code: 'conflict' });
  });
});

describe('the limit of processes', () => {
  it.runIf(bwrap)('is set when bubblewrap has made its own processes, and the user is the tenant’s', async () => {
    const { args } = await bwrap!.command({ ...asleepIn(tmpdir()), uid: 20_000 });
    const last = args.slice(args.lastIndexOf('/bin/setpriv'));
    expect(last.slice(-4)).toEqual(['/bin/prlimit', `--nproc=${USER_THREADS}`, '/bin/sleep', '60']);
    expect(args.filter((one) => one.startsWith('--nproc'))).toHaveLength(1);
  });

  // A busy instance of a cluster has hundreds, and the next version starts beside it.
  it.runIf(bwrap && user !== undefined)('is none that other sandboxes of the same user come near', async () => {
    const others = Array.from({ length: 600 }, () => spawn('/bin/sleep', ['60'], { uid: user!, stdio: 'ignore' }));
    try {
      const node = { ...asleepIn(tmpdir()), program: process.execPath, args: ['--eval', '0'], uid: user!, binds: [] };
      const confined = await spawnConfined(bwrap!, { ...node, profile: 'database' });
      expect(await confined.ended).toMatchObject({ code: 0 });
    } finally {
      for (const other of others) other.kill('SIGKILL');
      await Promise.all(others.map((other) => once(other, 'exit')));
    }
  });
});

describe('what workerd finds inside', () => {
  it.runIf(bwrap).each([['bwrap', bwrap!] as const, ...(unshare ? [['unshare', unshare] as const] : [])])(
    'with %s: what its allocator needs for a cache of each CPU, and no more of the machine',
    async (_, sandbox) => {
      const folder = mkdtempSync(join(tmpdir(), 'cell-'));
      const { process: prewarmed } = await startPrewarmedSandbox({ sandbox, ...sandboxFolders(folder) });
      try {
        const pid = await until(() => prewarmed.pid(), 'the sandbox to be whole');
        const name = () => readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
        await until(() => name() === 'workerd', 'workerd to run');
        const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').filter(Boolean);
        expect(variables.filter((variable) => !/^(OLD)?PWD=/.test(variable))).toEqual([
          'GLIBC_TUNABLES=glibc.pthread.rseq=0',
        ]);
        const file = '/sys/devices/system/cpu/possible';
        expect(readFileSync(`/proc/${pid}/root${file}`, 'utf8')).toBe(readFileSync(file, 'utf8'));
        expect(readdirSync(`/proc/${pid}/root/sys`, { recursive: true })).toEqual([
          'devices',
          'devices/system',
          'devices/system/cpu',
          'devices/system/cpu/possible',
        ]);
      } finally {
        prewarmed.kill();
        await prewarmed.ended;
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );
});

describe('end of the host', () => {
  const HOST = `
    const { startPrewarmedSandbox, sandboxFolders } = await import(${JSON.stringify(fileURLToPath(new URL('../../host/runtime/prewarmed-sandbox.ts', import.meta.url)))});
    const { detectSandbox } = await import(${JSON.stringify(fileURLToPath(new URL('../../host/sandbox/index.ts', import.meta.url)))});
    const [level, folder] = process.argv.slice(-2);
    const prewarmed = await startPrewarmedSandbox({ sandbox: await detectSandbox(level), ...sandboxFolders(folder) });
    const find = setInterval(() => { const pid = prewarmed.process.pid(); if (pid) { clearInterval(find); console.log(pid); } }, 5);
    setInterval(() => {}, 1000);
  `;

  it.runIf(bwrap).each(['bwrap', ...(unshare ? ['unshare'] : [])])(
    'takes everything under %s along, even by SIGKILL',
    async (level) => {
      const folder = mkdtempSync(join(tmpdir(), 'cell-'));
      const host = spawn(process.execPath, ['--input-type=module', '--eval', HOST, level, folder], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      try {
        const [line] = (await once(host.stdout, 'data')) as [Buffer];
        const pid = Number(line.toString());
        expect(existsSync(`/proc/${pid}/exe`) || existsSync(`/proc/${pid}`)).toBe(true);
        host.kill('SIGKILL');
        // A process that only waits to be collected has no memory map any more.
        await until(() => !alive(pid), 'the instance to die with its host');
      } finally {
        host.kill('SIGKILL');
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );

  it.runIf(bwrap).each([['bwrap', bwrap!] as const, ...(unshare ? [['unshare', unshare] as const] : [])])(
    'before %s asked for the death signal leaves a sandbox, which the next host ends',
    async (_, sandbox) => {
      const folder = mkdtempSync(join(tmpdir(), 'cells-'));
      const other = mkdtempSync(join(tmpdir(), 'cells-'));
      const { file, args, seccomp } = await deaf(sandbox).command(asleepIn(folder));
      mkdirSync(join(folder, 's'));
      const orphan = spawn(file, args, { stdio: ['ignore', 'ignore', 'ignore', 'ignore', 'pipe'], detached: true });
      (orphan.stdio[SECCOMP_FD] as Writable).end(seccomp);
      const tool = spawn('tail', ['-f', '/dev/null', join(folder, 's')], { argv0: 'bwrap', stdio: 'ignore' });
      const gone = once(orphan, 'exit');
      try {
        const asleep = await until(() => sleepers(orphan.pid!)[0], 'the sandbox to be whole');
        expect(endLeftovers(other)).toEqual([]);
        expect(alive(asleep)).toBe(true);
        expect(endLeftovers(folder)).toContain(orphan.pid);
        await until(() => !alive(asleep), 'what was inside to end');
        await gone;
        expect(alive(tool.pid!)).toBe(true);
      } finally {
        tool.kill();
        orphan.kill('SIGKILL');
        rmSync(folder, { recursive: true, force: true });
        rmSync(other, { recursive: true, force: true });
      }
    },
  );
});

describe('a sandbox whose outermost process is killed', () => {
  it.runIf(bwrap)('before its inside asked for the death signal ends all the same', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'cells-'));
    mkdirSync(join(folder, 's'));
    try {
      const [hit, other] = [
        await spawnConfined(deaf(bwrap!), asleepIn(folder)),
        await spawnConfined(deaf(bwrap!), asleepIn(folder)),
      ];
      const [asleep, living] = await Promise.all(
        [hit, other].map(({ helper }) => until(() => sleepers(helper!)[0], 'the sandbox to be whole')),
      );
      process.kill(hit.helper!, 'SIGKILL');
      expect(await hit.ended).toMatchObject({ signal: 'SIGKILL' });
      expect(alive(asleep!)).toBe(false);
      expect(alive(living!)).toBe(true);
      other.kill();
      await other.ended;
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

/** A sandbox in the state before it has asked for the death signal. */
function deaf(sandbox: Sandbox): Sandbox {
  return {
    ...sandbox,
    command: async (confinement) => {
      const { file, args, seccomp } = await sandbox.command(confinement);
      const kept = args.filter(
        (argument, index) =>
          !['--die-with-parent', '--kill-child', '--pdeathsig'].includes(argument) && args[index - 1] !== '--pdeathsig',
      );
      return { file, args: kept, seccomp };
    },
  };
}

const asleepIn = (folder: string): Confinement => ({
  program: '/bin/sleep',
  args: ['60'],
  binds: [{ from: join(folder, 's'), to: '/run/services' }],
  uid: undefined,
  profile: 'worker',
  limits: { openFiles: 64, fileBytes: 0 },
});

/** The program in a sandbox, once it runs. */
function sleepers(sandbox: number): number[] {
  return processTree([sandbox]).filter((pid) => commandOf(pid) === '/bin/sleep 60');
}
