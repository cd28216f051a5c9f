/**
 * Loads the code of payments in pieces: in one, it would keep this process from everything else for half a second, and
 * tenants are served by then.
 */

/** Each takes a tenth of a second at most, with what the ones before it have loaded. */
const PIECES: (() => Promise<unknown>)[] = [
  () => import('viem/utils'),
  () => import('viem'),
  () => import('viem/chains'),
  () => import('viem/tempo'),
  () => import('mppx'),
  () => import('mppx/tempo'),
  () => import('mppx/server'),
  () => import('@x402/evm'),
];

/** @param pause waited for before each piece */
export async function loadPayments(pause: () => Promise<unknown>) {
  for (const piece of PIECES) {
    await pause();
    await piece();
  }
  const [network, payments] = await Promise.all([import('./network/index.ts'), import('./index.ts')]);
  return { ...network, ...payments };
}
