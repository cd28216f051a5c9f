/** What a start that failed tells whoever started it. */
import { fullDisk } from '../shared/full-disk.ts';
import { Problem } from '../shared/problem.ts';

/** What follows when the payment network does not answer, and what to do. */
export const NETWORK_FAILS =
  'payments do not work until it answers; check payments.rpcUrl, payments.x402.rpcUrl and payments.solana.rpcUrl';

/**
 * @returns what to do, or undefined for a fault of ours, which is shown whole
 * @param dataFolder where known already
 */
export function explainStart(error: unknown, dataFolder: string | undefined): string | undefined {
  const full = fullDisk(error);
  if (full) {
    const where = dataFolder === undefined ? '' : ` in ${dataFolder} and`;
    return `The disk is full (${full.message}). Make room${where} in the temporary folder, then start again; what was kept is still there.`;
  }
  return error instanceof Problem ? error.message : undefined;
}

/** @throws Problem invalid_config with the words of the system, or of SQLite, where `open` fails */
export function usingDataFolder<T>(dataFolder: string, open: () => T): T {
  try {
    return open();
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem(
      'invalid_config',
      `The data folder ${dataFolder} cannot be used: ${(error as Error).message}. Let this user write to it, or name another with --data.`,
      { cause: error },
    );
  }
}
