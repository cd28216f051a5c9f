import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';

/** Shows what a program that it starts has open, before and after. */
const PROGRAM = `
  import { spawnSync } from 'node:child_process';
  import { closeInherited } from ${JSON.stringify(new URL('../../host/supervisor/inherited-descriptors.ts', import.meta.url).href)};
  const inside = () => spawnSync('ls', ['/proc/self/fd'], { encoding: 'utf8' }).stdout.trim().split('\\n');
  const before = inside();
  closeInherited();
  console.log(JSON.stringify({ before, after: inside(), still: spawnSync('true').status }));`;

test('what a script left open does not reach the programs that are started', async () => {
  const child = spawn(
    'bash',
    ['-c', 'exec 200>/dev/null 90</dev/null; exec "$0" --input-type=module -e "$1"', process.execPath, PROGRAM],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const [said] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  const { before, after, still } = JSON.parse(said) as { before: string[]; after: string[]; still: number };
  expect(before).toEqual(expect.arrayContaining(['90', '200']));
  // 3 is the folder that `ls` lists.
  expect(after).toEqual(['0', '1', '2', '3']);
  expect(still).toBe(0);
});
