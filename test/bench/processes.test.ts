import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { cpuSeconds } from './processes.ts';

test('what a child used still counts after it has ended', async () => {
  const work = '(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done); echo; read line';
  const parent = spawn('sh', ['-c', work], { stdio: ['pipe', 'pipe', 'inherit'] });
  await once(parent.stdout, 'data');
  const used = cpuSeconds([parent.pid ?? 0]);
  parent.stdin.end();
  await once(parent, 'exit');
  expect(used).toBeGreaterThanOrEqual(0.03);
});
