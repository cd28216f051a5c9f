import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { withDescriptorTable } from '../../host/supervisor/descriptor-table.ts';

/** Size of a process's table of descriptors, as the kernel says. */
const FD_SIZE = /^FDSize:\t(\d+)$/m;
const SHOW = `process.stdout.write(require('fs').readFileSync('/proc/self/status', 'utf8'))`;

test.each([4_096, 8_192])('a child has room for %i descriptors at its start', async (descriptors) => {
  const before = readdirSync('/proc/self/fd').length;
  const child = withDescriptorTable(['ignore', 'pipe', 'inherit'], descriptors, (stdio) =>
    spawn(process.execPath, ['-e', SHOW], { stdio }),
  );
  const [status] = await Promise.all([text(child.stdout as NodeJS.ReadableStream), once(child, 'exit')]);
  expect(Number(FD_SIZE.exec(status)?.[1])).toBeGreaterThanOrEqual(descriptors);
  expect(readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(before);
  expect(Number(FD_SIZE.exec(readFileSync('/proc/self/status', 'utf8'))?.[1])).toBeLessThan(descriptors);
});

test('a lower limit makes less room, and nothing fails', async () => {
  const program = `
    import { spawnSync } from 'node:child_process';
    import { withDescriptorTable } from ${JSON.stringify(new URL('../../host/supervisor/descriptor-table.ts', import.meta.url).href)};
    const { status } = withDescriptorTable(['ignore', 'ignore', 'inherit'], 8_192, (stdio) =>
      spawnSync(process.execPath, ['-e', ''], { stdio }));
    process.exitCode = status ?? 1;`;
  const child = spawn(
    'sh',
    ['-c', 'ulimit -n 1024; exec "$0" --input-type=module -e "$1"', process.execPath, program],
    {
      stdio: ['ignore', 'inherit', 'inherit'],
    },
  );
  expect(await once(child, 'exit')).toEqual([0, null]);
});
