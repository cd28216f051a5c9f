/** Who may leave how many bodies unfinished. */
import { expect, test } from 'vitest';
import { UnfinishedBodies } from '../../host/edge/unfinished-bodies.ts';

/** @returns names of those that had to give way */
function bodiesOf(bodies: UnfinishedBodies) {
  const gone: string[] = [];
  return {
    gone,
    add(network: string, name: string) {
      const body = {
        giveWay() {
          gone.push(name);
          bodies.remove(network, body);
        },
      };
      return bodies.add(network, body) ? body : undefined;
    },
  };
}

test('one caller has so many', () => {
  const bodies = new UnfinishedBodies(2, 10);
  const { add } = bodiesOf(bodies);
  const first = add('a', 'a1');
  expect([add('a', 'a2'), add('a', 'a3'), add('b', 'b1')].map(Boolean)).toEqual([true, false, true]);
  if (first) bodies.remove('a', first);
  if (first) bodies.remove('a', first);
  expect(bodies.size).toBe(2);
  expect(add('a', 'a4')).toBeDefined();
});

test('where all places are taken, the oldest of who has most gives way to who has fewer', () => {
  const bodies = new UnfinishedBodies(3, 4);
  const { add, gone } = bodiesOf(bodies);
  for (const [network, name] of [
    ['b', 'b1'],
    ['a', 'a1'],
    ['a', 'a2'],
    ['a', 'a3'],
  ] as const)
    add(network, name);
  expect(add('a', 'a4')).toBeUndefined();
  expect(add('c', 'c1')).toBeDefined();
  expect(gone).toEqual(['a1']);
  expect(add('c', 'c2')).toBeDefined();
  expect(gone).toEqual(['a1', 'a2']);
  expect(bodies.size).toBe(4);
  // Nobody has more than one who asks for a second.
  expect(add('c', 'c3')).toBeUndefined();
});
