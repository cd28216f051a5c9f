/** What callers are told of a suspended deployment, and what stands in for its code. */
import { expect, it } from 'vitest';
import { suspendedBindings, suspendedBundle, suspension } from '../../host/control/suspension.ts';
import { Problem } from '../../host/shared/problem.ts';

const row = { slug: 'abc', suspendedAt: 1, suspendedReason: 'spam “</script>” \u2028 \\ ` $ {1}' };

it.each(['active', 'expired'] as const)('%s deployments are suspended', (state) => {
  expect(suspension({ ...row, state })).toMatchObject({ code: 'suspended', message: expect.stringContaining('spam') });
  expect(suspension({ ...row, state, suspendedAt: null, suspendedReason: null })).toBeUndefined();
});

it('decommissioned ones are gone, and no more than that', () => {
  expect(suspension({ ...row, state: 'decommissioned' })).toBeUndefined();
});

it('a module that says so, whatever the reason holds, stands in for the code', async () => {
  const problem = suspension({ ...row, state: 'active' }) ?? new Problem('internal', '');
  const { modules, sourceMap } = suspendedBundle(problem);
  expect([modules.length, sourceMap]).toEqual([1, undefined]);
  const url = `data:text/javascript;base64,${Buffer.from(modules[0]?.body ?? []).toString('base64')}`;
  const { default: handler } = await import(/* @vite-ignore */ url);
  const answer: Response = handler.fetch();
  expect(answer.status).toBe(403);
  expect(answer.headers.get('content-type')).toBe('application/problem+json');
  expect(await answer.json()).toEqual(problem.toDocument());
});

it('only bindings to data stay, by their names', () => {
  const kept = { kv: { CACHE: { id: 'cache' } }, d1: true, r2: false };
  const set = {
    ...kept,
    payments: true,
    durableObjects: { LOGS: { class: 'Log' } },
    queues: { JOBS: { queue: 'jobs', consumer: {} } },
    workflows: { FLOW: { name: 'flow', class: 'Flow' } },
  };
  expect(suspendedBindings(set)).toEqual(kept);
});
