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
