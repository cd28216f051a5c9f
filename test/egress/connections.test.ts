import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { Connections, type Session } from '../../host/egress/database/connections.ts';

const { signal } = new AbortController();
const session = (): Session => ({ socket: new PassThrough() });

describe('connections to databases', () => {
  test('are made up to the limit; who comes then waits until one is given back', async () => {
    const connections = new Connections(2);
    expect(await connections.take('a', signal)).toBeUndefined();
    expect(await connections.take('a', signal)).toBeUndefined();
    const waiting = connections.take('a', signal);
    const kept = session();
    connections.keep(kept, 'a');
    expect(await waiting).toBe(kept);
    expect(connections.open).toBe(2);
  });

  test('that are kept go to who asks for the same, or make room', async () => {
    const connections = new Connections(1);
    await connections.take('a', signal);
    const kept = session();
    connections.keep(kept, 'a');
    expect(await connections.take('a', signal)).toBe(kept);
    connections.keep(kept, 'a');
    expect(await connections.take('b', signal)).toBeUndefined();
    expect(kept.socket.destroyed).toBe(true);
    expect(connections.open).toBe(1);
  });

  test('that say something unasked, or end, are not used again', async () => {
    const connections = new Connections(3);
    for (const spoil of [(one: PassThrough) => one.write('shutdown'), (one: PassThrough) => one.destroy()]) {
      await connections.take('a', signal);
      const kept = session();
      connections.keep(kept, 'a');
      spoil(kept.socket as PassThrough);
      await new Promise((resolve) => kept.socket.once('close', resolve));
      expect(await connections.take('a', signal)).toBeUndefined();
      connections.gone();
      expect(connections.open).toBe(0);
    }
  });

  test('are not waited for too long, nor by too many, nor by who has gone', async () => {
    const connections = new Connections(1, 20);
    await connections.take('a', signal);
    await expect(connections.take('a', signal)).rejects.toMatchObject({ code: 'egress_limit' });
    const leaver = new AbortController();
    const left = connections.take('a', leaver.signal);
    leaver.abort(new Error('gone'));
    await expect(left).rejects.toThrow('gone');
    const many = await Promise.allSettled(Array.from({ length: 1_000 }, () => connections.take('a', signal)));
    expect(many.every(({ status }) => status === 'rejected')).toBe(true);
    connections.gone();
    expect(await connections.take('a', signal)).toBeUndefined();
    expect(connections.open).toBe(1);
  });

  test('end when all is over, those that come back later, too', async () => {
    const connections = new Connections(2);
    await connections.take('a', signal);
    await connections.take('a', signal);
    const [kept, late] = [session(), session()];
    connections.keep(kept, 'a');
    connections.close();
    connections.keep(late, 'a');
    expect([kept.socket.destroyed, late.socket.destroyed, connections.open]).toEqual([true, true, 0]);
  });
});
