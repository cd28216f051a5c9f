/** On a fresh host, instances and databases that callers wait for start before the code of payments is loaded. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Runtime } from '../runtime/contract.ts';

/** How long payments wait for them in all, ms. */
const TENANTS_FIRST_MS = 2_500;
/** What somebody who waited for the host asks for has begun to start by then. */
const FIRST_CALLERS_MS = 10;

/**
 * @param payments an instance that has them among its bindings waits for them itself
 * @returns waits for as long as tenants go first
 */
export function tenantsFirst(
  runtime: Pick<Runtime, 'starting'>,
  payments: { readonly wanted: boolean },
  now = () => performance.now(),
): () => Promise<void> {
  const until = now() + TENANTS_FIRST_MS;
  return async () => {
    await delay(FIRST_CALLERS_MS);
    while (runtime.starting && !payments.wanted && now() < until) await delay(FIRST_CALLERS_MS);
  };
}
