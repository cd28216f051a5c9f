import { describe, expect, it } from 'vitest';
import { EngineFailure } from '../../../builtin-tenants/speech/engine/failure.ts';
import { Lane } from '../../../builtin-tenants/speech/engine/lane.ts';

const forever = new AbortController().signal;

/** Lets everything run that can. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

function gate() {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { wait: () => promise, open: resolve };
}

describe('a lane', () => {
  it('runs so many at a time, in order of arrival', async () => {
    const lane = new Lane('test', { jobs: 1, waiting: 2 });
    const gates = [gate(), gate(), gate()];
    const begun: number[] = [];
    const jobs = gates.map(({ wait }, index) =>
      lane.admit().run(async () => {
        begun.push(index);
        await wait();
      }, forever),
    );
    await turn();
    expect(begun).toEqual([0]);
    for (const [index, { open }] of gates.entries()) {
      open();
      await jobs[index];
      await turn();
      expect(begun).toEqual([0, 1, 2].slice(0, index + 2));
    }
    expect(begun).toEqual([0, 1, 2]);
    expect(lane.state).toMatchObject({ running: 0, waiting: 0 });
  });

  it('takes those who wait in turns, by address and payer', async () => {
    const lane = new Lane('test', { jobs: 1, waiting: 19 });
    const begun: string[] = [];
    const first = gate();
    const job = (...names: string[]) =>
      lane.admit(names).run(async () => {
        begun.push(names.join('@'));
        if (begun.length === 1) await first.wait();
      }, forever);
    const jobs = [...['a@x', 'a@x', 'a@x', 'b@x', 'b@x', 'c@y', 'c@y', 'd@z'].map((name) => job(...name.split('@')))];
    await turn();
    first.open();
    await Promise.all(jobs);
    // a and b share an address: together they get one turn of three.
    expect(begun).toEqual(['a@x', 'c@y', 'd@z', 'b@x', 'c@y', 'a@x', 'b@x', 'a@x']);
  });

  it('gives nobody more than half of the places', () => {
    const lane = new Lane('test', { jobs: 1, waiting: 7 });
    const places = Array.from({ length: 4 }, (_, at) => lane.admit([`wallet ${at}`, 'address']));
    expect(() => lane.admit(['wallet 5', 'address'])).toThrow('half');
    expect(() => lane.admit(['wallet 0', 'elsewhere'])).not.toThrow();
    places[0]?.leave();
    expect(() => lane.admit(['wallet 5', 'address'])).not.toThrow();
  });

  it('refuses what neither runs nor waits, and says when to come again', async () => {
    const lane = new Lane('test', { jobs: 1, waiting: 1 });
    const places = [lane.admit(), lane.admit()];
    let refusal: unknown;
    try {
      lane.admit();
    } catch (error) {
      refusal = error;
    }
    expect(refusal).toBeInstanceOf(EngineFailure);
    expect(refusal).toMatchObject({ code: 'queue_full', status: 429, facts: { retryAfter: expect.any(Number) } });
    places[0]?.leave();
    places[0]?.leave();
    expect(() => lane.admit()).not.toThrow();
    expect(() => lane.admit()).toThrow(EngineFailure);
  });

  it('gives the turn of a caller that has gone to the next', async () => {
    const lane = new Lane('test', { jobs: 1, waiting: 2 });
    const first = gate();
    const gone = new AbortController();
    const running = lane.admit().run(first.wait, forever);
    const left = lane.admit().run(async () => 'never', gone.signal);
    const next = lane.admit().run(async () => 'next', forever);
    gone.abort(new Error('gone'));
    await expect(left).rejects.toThrow('gone');
    first.open();
    await running;
    expect(await next).toBe('next');
    expect(lane.state).toMatchObject({ running: 0, waiting: 0 });
  });

  it('frees the place of work that fails', async () => {
    const lane = new Lane('test', { jobs: 1, waiting: 0 });
    await expect(lane.admit().run(() => Promise.reject(new Error('broken')), forever)).rejects.toThrow('broken');
    expect(await lane.admit().run(async () => 1, forever)).toBe(1);
  });
});
