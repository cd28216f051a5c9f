import { expect, it } from 'vitest';
import type { PrewarmedSandbox } from '../../host/runtime/prewarmed-sandbox.ts';
import type { Services } from '../../host/runtime/services.ts';
import { SharedServices } from '../../host/runtime/shared-services.ts';

/** @param held closing takes until `closing` lets it end */
function rig(held = false) {
  const log: string[] = [];
  let made = 0;
  /** Lets the first closing end. */
  const closing = Promise.withResolvers<() => void>();
  const shared = new SharedServices(() => log.push('unused'));
  const start = async (known: Services | undefined) => {
    await new Promise((resolve) => setImmediate(resolve));
    if (known) return { services: known, prewarmed: {} as PrewarmedSandbox };
    const name = `services ${++made}`;
    log.push(`${name} open`);
    const close = async () => {
      await new Promise<void>((resolve) => {
        closing.resolve(resolve);
        if (!held) resolve();
      });
      log.push(`${name} closed`);
    };
    const services = { name, close } as unknown as Services;
    return { services, prewarmed: {} as PrewarmedSandbox };
  };
  return { log, shared, closing: closing.promise, enter: (user: object) => shared.enter(user, start) };
}

it('two that come at once share what the first one made, until both have left', async () => {
  const { log, shared, enter } = rig();
  const [live, preview] = [{}, {}];
  const [first, second] = await Promise.all([enter(live), enter(preview)]);
  expect(first.services).toBe(second.services);
  expect([shared.isLookedAfterBy(live), shared.isLookedAfterBy(preview)]).toEqual([true, false]);
  await shared.leave(live);
  expect(shared.isLookedAfterBy(preview)).toBe(true);
  expect(shared.current).toBe(first.services);
  await shared.leave(preview);
  await shared.leave(preview);
  expect(shared.current).toBeUndefined();
  expect(log).toEqual(['services 1 open', 'services 1 closed', 'unused']);
});

it('who comes while the last one leaves keeps them', async () => {
  const { log, shared, enter } = rig();
  const [one, two] = [{}, {}];
  await enter(one);
  await Promise.all([shared.leave(one), enter(two)]);
  expect(log).toEqual(['services 1 open']);
});

it('who comes while they are being closed waits for that, and makes new ones', async () => {
  const { log, shared, enter, closing } = rig(true);
  const [one, two] = [{}, {}];
  await enter(one);
  const left = shared.leave(one);
  const finish = await closing;
  const entered = enter(two);
  await new Promise((resolve) => setImmediate(resolve));
  expect(log).toEqual(['services 1 open']);
  finish();
  await Promise.all([left, entered]);
  expect(log).toEqual(['services 1 open', 'services 1 closed', 'services 2 open']);
});

it('one that could not start leaves nothing', async () => {
  const { log, shared } = rig();
  const user = {};
  await expect(shared.enter(user, async () => Promise.reject(new Error('no sandbox')))).rejects.toThrow('no sandbox');
  await shared.leave(user);
  expect([shared.current, log]).toEqual([undefined, ['unused']]);
});
