/** The sandbox, attacked with the doctor's program and by watching what survives its owner. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { tryToBreak } from '../../host/runtime/doctor.ts';
import { detectSandbox } from '../../host/runtime/sandbox.ts';
import { until } from './runtime-rig.ts';

const available = async (level: 'bwrap' | 'unshare') =>
  detectSandbox(level).then(
    (sandbox) => sandbox,
    () => undefined,
  );
const bwrap = await available('bwrap');
const unshare = await available('unshare');

describe('escape attempts', () => {
  it.runIf(bwrap)('bubblewrap contains every one of them', async () => {
    const attempts = await tryToBreak(bwrap!);
    expect(attempts.length).toBeGreaterThan(50);
    expect(attempts.filter(({ contained }) => !contained)).toEqual([]);
  });

  it.runIf(unshare)('unshare contains all but free choice of system calls', async () => {
    const attempts = await tryToBreak(unshare!);
    const failed = attempts.filter(({ contained }) => !contained).map(({ attempt }) => attempt);
    expect(new Set(failed)).toEqual(new Set(['make any system call']));
  });

  it('without a sandbox nothing is tried, since it would work', async () => {
    await expect(tryToBreak(await detectSandbox('none'))).rejects.toMatchObject({ code: 'conflict' });
  });
});

describe('end of the host', () => {
  const HOST = `
    const { startCell, cellFolders } = await import(${JSON.stringify(fileURLToPath(new URL('../../host/runtime/cell.ts', import.meta.url)))});
    const { detectSandbox } = await import(${JSON.stringify(fileURLToPath(new URL('../../host/runtime/sandbox.ts', import.meta.url)))});
    const [level, folder] = process.argv.slice(-2);
    const cell = await startCell({ sandbox: await detectSandbox(level), ...cellFolders(folder) });
    const find = setInterval(() => { const pid = cell.process.pid(); if (pid) { clearInterval(find); console.log(pid); } }, 5);
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
        await until(() => !alive(pid), 5_000, 'the instance to die with its host');
      } finally {
        host.kill('SIGKILL');
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );
});

function alive(pid: number): boolean {
  try {
    const status = process.getBuiltinModule('node:fs').readFileSync(`/proc/${pid}/status`, 'latin1');
    return !/^State:\s+[ZX]/m.test(status);
  } catch {
    return false;
  }
}
