/** Many requests of one slug begin a few a turn; whoever comes between them begins at once. */
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { StartTurns } from '../../host/edge/start-turns.ts';

const startTurns = () =>
  new StartTurns(32, (error) => {
    throw error;
  });

test('a few requests begin at once', () => {
  const turns = startTurns();
  const begun: number[] = [];
  for (let i = 0; i < 5; i++) turns.run('a', () => begun.push(i));
  expect(begun).toEqual([0, 1, 2, 3, 4]);
});

test('many begin in their order over several turns, and another slug waits for none of them', async () => {
  const turns = startTurns();
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

test('those that come one by one all begin at once', async () => {
  const turns = startTurns();
  let begun = 0;
  for (let i = 0; i < 320; i++) {
    turns.run('a', () => begun++);
    expect(begun).toBe(i + 1);
    if (i % 16 === 0) await turn();
  }
});

test('short lines go before long ones', async () => {
  const turns = startTurns();
  const begun: string[] = [];
  for (let i = 0; i < 100; i++) turns.run('a', () => begun.push('a'));
  for (let i = 0; i < 10; i++) turns.run('b', () => begun.push('b'));
  const atOnce = begun.length;
  await turn();
  expect(begun.slice(atOnce, atOnce + 6)).toEqual(Array(6).fill('b'));
});

test('what a beginning adds to its own line comes after those that wait', async () => {
  const turns = startTurns();
  const begun: string[] = [];
  for (let i = 0; i < 40; i++) turns.run('a', () => begun.push(`${i}`));
  turns.run('a', () => turns.run('a', () => begun.push('inner')));
  await turn();
  await turn();
  await turn();
  expect(begun).toEqual([...Array.from({ length: 40 }, (_, i) => `${i}`), 'inner']);
});

test('one that fails takes none of the others with it', async () => {
  const mistakes: unknown[] = [];
  const turns = new StartTurns(32, (error) => mistakes.push(error));
  let begun = 0;
  for (let i = 0; i < 36; i++) turns.run('a', () => begun++);
  turns.run('a', () => {
    throw new Error('a mistake');
  });
  turns.run('a', () => begun++);
  await turn();
  expect([begun, String(mistakes)]).toEqual([37, 'Error: a mistake']);
});
