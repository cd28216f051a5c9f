/**
 * How the command ends: one number per kind of outcome, stable, so that scripts and agents can act on it.
 * Shown by `turnpike --help`.
 */
export const EXIT = {
  ok: [0, 'done'],
  unexpected: [1, 'something unexpected went wrong'],
  usage: [2, 'the command line or a file it names is not understood'],
  refused: [3, 'the host refused the request'],
  payment: [4, 'the payment was refused, is over the limit, or needs a token or chain that was not allowed'],
  unreachable: [5, 'the host does not answer, or answers with a fault of its own'],
  notOwner: [6, 'another wallet owns this'],
  cancelled: [7, 'cancelled at the question'],
  unhealthy: [8, 'doctor found something that does not work'],
} as const satisfies Record<string, readonly [number, string]>;

export type ExitName = keyof typeof EXIT;

export function exitCode(name: ExitName): number {
  return EXIT[name][0];
}
