/** Which constraint of the database a write broke, on either engine. */

export type Constraint = 'CHECK' | 'NOT NULL' | 'UNIQUE';

const BY_CODE: Record<string, Constraint> = {
  SQLITE_CONSTRAINT_CHECK: 'CHECK',
  SQLITE_CONSTRAINT_NOTNULL: 'NOT NULL',
  SQLITE_CONSTRAINT_PRIMARYKEY: 'UNIQUE',
  SQLITE_CONSTRAINT_UNIQUE: 'UNIQUE',
};

/** @returns undefined where it was another failure */
export function brokenConstraint(error: unknown): Constraint | undefined {
  for (let one = error; one instanceof Error; one = one.cause) {
    const { extendedCode } = one as Error & { extendedCode?: string };
    if (extendedCode !== undefined) return BY_CODE[extendedCode];
  }
  return undefined;
}
