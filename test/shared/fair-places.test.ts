import { expect, test } from 'vitest';
import { FairPlaces, type Lane, NoPlace } from '../../host/shared/fair-places.ts';

const LANE: Lane = { places: 2, perParty: 1 };

/** Asks for a place and notes under `name` when it has it. */
function asker(places: FairPlaces) {
  const order: string[] = [];
  const leaves: (() => void)[] = [];
  const ask = async (name: string, party: string, lane = 0, member = ''): Promise<void> => {
    const leave = await places.take({ lane, party, member });
    order.push(name);
    leaves.push(leave);
  };
  /** Gives the place back that was taken first. */
  const leave = async (): Promise<void> => {
    leaves.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { order, ask, leave };
}

test('parties take turns, and so do the members of one', async () => {
  const { order, ask, leave } = asker(new FairPlaces(1, [LANE]));
  for (let index = 0; index < 4; index++) void ask(`a${index}`, 'a', 0, 'one');
  void ask('other', 'a', 0, 'two');
  void ask('b', 'b');
  void ask('c', 'c');
  for (let index = 0; index < 7; index++) await leave();
  expect(order).toEqual(['a0', 'a1', 'b', 'c', 'other', 'a2', 'a3']);
});

test('no party holds more than its share, and no lane more than its places', async () => {
  const { order, ask, leave } = asker(new FairPlaces(3, [LANE, { places: 1, perParty: 1 }]));
  void ask('a0', 'a');
  void ask('a1', 'a');
  void ask('x', 'x', 1);
  void ask('y', 'y', 1);
  void ask('b', 'b');
  await new Promise((resolve) => setImmediate(resolve));
  expect(order).toEqual(['a0', 'x', 'b']);
  await leave();
  expect(order).toEqual(['a0', 'x', 'b', 'a1']);
});

test('the first lane comes first', async () => {
  const { order, ask, leave } = asker(new FairPlaces(1, [LANE, LANE]));
  void ask('stranger', 's', 1);
  void ask('stranger 2', 't', 1);
  void ask('owner', 'o', 0);
  for (let index = 0; index < 3; index++) await leave();
  expect(order).toEqual(['stranger', 'owner', 'stranger 2']);
});

test('who may not wait is told why', async () => {
  const places = new FairPlaces(1, [{ places: 1, perParty: 1, waiting: 2, waitingPerParty: 1, waitMs: 20 }]);
  const leave = await places.take({ lane: 0, party: 'a' });
  const waits = ['a', 'b'].map((party) => places.take({ lane: 0, party }).catch((error: unknown) => error));
  const why = (party: string) => places.take({ lane: 0, party }).catch((error: unknown) => (error as NoPlace).why);
  expect(await why('a')).toBe('party');
  expect(await why('c')).toBe('all');
  for (const refused of await Promise.all(waits)) expect(refused).toMatchObject({ why: 'long' });
  expect(places.waiting).toBe(0);
  leave();
  leave();
  const again = await places.take({ lane: 0, party: 'b' });
  const next = places.take({ lane: 0, party: 'c' }).catch((error: unknown) => error);
  expect(await next).toBeInstanceOf(NoPlace);
  again();
});
