/** Many requests of one slug begin a few a turn; whoever comes between them begins at once. */
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { StartTurns } from '../../host/edge/start-turns.ts';

test('a few requests begin at once', () => {
  const turns = new StartTurns(32);
  const begun: number[] = [];
  for (let i = 0; i < 5; i++) turns.run('a', () => begun.push(i));
  expect(begun).toEqual([0, 1, 2, 3, 4]);
});

test('many begin in their order over several turns, and another slug waits for none of them', async () => {
  const turns = new StartTurns(32);
  const begun: string[] = [];
  for (let i = 0; i < 1_000; i++) turns.run('a', () => begun.push(`a${i}`));
  const atOnce = begun.length;
  expect(atOnce).toBeLessThan(100);
  turns.run('b', () => begun.push('b'));
  expect(begun.at(-1)).toBe('b');
  await turn();
  expect(begun.length).toBeLessThanOrEqual(2 * atOnce + 1);
  turns.run('a', () => begun.push('a1000'));
  turns.run('b', () => begun.push('b'));
  expect(begun.at(-1)).toBe('b');
  while (begun.length < 1_003) await turn();
  expect(begun.filter((name) => name !== 'b')).toEqual(Array.from({ length: 1_001 }, (_, i) => `a${i}`));
});

test('a line that is empty again starts anew', async () => {
  const turns = new StartTurns(32);
  let begun = 0;
  for (let round = 0; round < 20; round++) {
    for (let i = 0; i < 32; i++) turns.run('a', () => begun++);
    expect(begun).toBe(32 * (round + 1));
    await turn();
  }
});

test('what a beginning adds to its own line comes after those that wait', async () => {
  const turns = new StartTurns(32);
  const begun: string[] = [];
  for (let i = 0; i < 40; i++) turns.run('a', () => begun.push(`${i}`));
  turns.run('a', () => turns.run('a', () => begun.push('inner')));
  await turn();
  await turn();
  await turn();
  expect(begun).toEqual([...Array.from({ length: 40 }, (_, i) => `${i}`), 'inner']);
});
