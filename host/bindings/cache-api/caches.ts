/** The Cache API, as instances and the storage process find each other for it. It is no binding: every deployment has it. */
import type { CodeBundle } from '../../shared/contracts.ts';

/** Name of the store, of its socket, and of its service in workerd. */
export const CACHE = 'cache';

/** Most handlers do without a cache, and are spared its socket. */
export function usesCaches({ modules }: CodeBundle): boolean {
  return modules.some(
    ({ type, body }) =>
      type === 'esModule' && Buffer.from(body.buffer, body.byteOffset, body.byteLength).includes('caches'),
  );
}
