/** Compatibility dates and flags: what workerd would refuse to start with is refused before. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { BINDINGS } from '../../bindings/index.ts';
import { type FieldError, Problem } from '../../shared/problem.ts';

/** workerd's version is `1.<date of the newest compatibility date it knows>.<n>`. */
const VERSION = /^1\.(\d{4})(\d{2})(\d{2})\./;
const DATE = /^\d{4}-\d{2}-\d{2}$/;
const FLAG = /^[a-z0-9_]{1,80}$/;
/** Flags that would change how a binding talks to its service into what the host does not speak. */
const UNSUPPORTED_FLAGS: Record<string, string> = Object.assign(
  {},
  ...BINDINGS.map(({ unsupportedFlags }) => unsupportedFlags),
);
/** Workers began then; workerd refuses nothing older, but it is a typing error. */
const OLDEST = '2021-01-01';

/** The newest date that may be asked for now: neither in the future nor unknown to the installed workerd. */
export function newestCompatibilityDate(now: number): string {
  const today = new Date(now).toISOString().slice(0, 10);
  return [today, workerdDate()].sort()[0] ?? today;
}

/** A date that workerd does not know yet becomes the newest that it knows, as in `wrangler dev`; a later one than today stays. */
export function knownCompatibilityDate(date: string, now: number): string {
  const newest = newestCompatibilityDate(now);
  return date > newest && date <= new Date(now).toISOString().slice(0, 10) ? newest : date;
}

/** @throws Problem invalid_field */
export function checkCompatibility(date: string, flags: string[], now: number): void {
  const errors: FieldError[] = [];
  const newest = newestCompatibilityDate(now);
  if (!DATE.test(date) || Number.isNaN(Date.parse(date))) {
    errors.push({ pointer: '/compatibilityDate', detail: 'is not a date like 2026-01-31' });
  } else if (date > newest) {
    errors.push({ pointer: '/compatibilityDate', detail: `is too new: ${newest} is the newest date of this host` });
  } else if (date < OLDEST) {
    errors.push({ pointer: '/compatibilityDate', detail: `is too old: ${OLDEST} is the oldest` });
  }
  for (const [index, flag] of flags.entries()) {
    if (!FLAG.test(flag))
      errors.push({ pointer: `/compatibilityFlags/${index}`, detail: 'is not a compatibility flag' });
    const unsupported = UNSUPPORTED_FLAGS[flag];
    if (unsupported) errors.push({ pointer: `/compatibilityFlags/${index}`, detail: unsupported });
  }
  if (errors.length === 0) return;
  throw new Problem('invalid_field', `Not acceptable: ${errors.map((e) => `${e.pointer} ${e.detail}`).join('; ')}.`, {
    errors,
  });
}

function workerdDate(): string {
  const file = createRequire(import.meta.url).resolve('workerd/package.json');
  const { version } = JSON.parse(readFileSync(file, 'utf8')) as { version: string };
  const match = VERSION.exec(version);
  if (!match) throw new Error(`workerd has an unknown kind of version: ${version}`);
  return `${match[1]}-${match[2]}-${match[3]}`;
}
