import { pino } from 'pino';
import { expect, it } from 'vitest';
import { Child } from '../../host/supervisor/child.ts';

it('leaves no process behind that could not be set up', async () => {
  const pids: number[] = [];
  let starts = 0;
  const child = new Child<Record<string, never>>('egress', 'egress', pino({ level: 'silent' }));
  try {
    await child.start({
      local: {},
      async setUp() {
        pids.push(child.pid ?? 0);
        starts += 1;
        // As when the folder of its socket is gone, or the disk is full.
        if (starts === 2 || starts === 3) throw new Error('cannot listen');
      },
    });
    process.kill(child.pid ?? 0, 'SIGKILL');
    await expect.poll(() => starts).toBe(4);
    await expect.poll(() => child.state).toBe('ready');
    await expect.poll(() => pids.filter(isAlive)).toEqual([child.pid]);
  } finally {
    await child.stop();
    for (const pid of pids.filter(isAlive)) process.kill(pid, 'SIGKILL');
  }
});

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
