/**
 * Cron expressions in Cloudflare's five-field dialect, in UTC: when they occur, and which occurrence is due.
 * Pure: the caller says what time it is. Dialect: https://developers.cloudflare.com/workers/configuration/cron-triggers/
 */
import { Cron } from 'croner';
import { Problem } from '../shared/problem.ts';

const NUMBERS = /^[\d*,/-]+$/;
const FIELDS: { name: string; allowed: RegExp }[] = [
  { name: 'minute', allowed: NUMBERS },
  { name: 'hour', allowed: NUMBERS },
  { name: 'day of month', allowed: /^[\d*,/LW-]+$/i },
  { name: 'month', allowed: /^(?:[\d*,/-]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)+$/i },
  { name: 'day of week', allowed: /^(?:[\d*,/L#-]|SUN|MON|TUE|WED|THU|FRI|SAT)+$/i },
];

/** A step back by less than this is a correction of the clock, not a wish to live the time again. */
const CORRECTION_MS = 3_600_000;

export class CronExpression {
  readonly text: string;
  readonly #cron: Cron;

  /** @throws Problem invalid_field */
  constructor(text: string, pointer = '') {
    this.text = text;
    this.#cron = parse(text, pointer);
  }

  /** The first occurrence after `ms`; undefined where there is none. */
  next(ms: number): number | undefined {
    return this.#cron.nextRun(new Date(Math.floor(ms / 1000) * 1000))?.getTime();
  }

  /** The last occurrence at or before `ms`; undefined where there is none. */
  latest(ms: number): number | undefined {
    // croner excludes the reference and works in whole seconds.
    const [found] = this.#cron.previousRuns(1, new Date(Math.floor(ms / 1000) * 1000 + 1000));
    return found?.getTime();
  }
}

/**
 * Which occurrence should run now: the last one missed, once, however many were missed.
 * @param since the occurrence that ran last, or the time from which the expression counts, ms
 */
export function dueOccurrence(cron: CronExpression, since: number, now: number): number | undefined {
  const latest = cron.latest(now);
  return latest !== undefined && latest > since ? latest : undefined;
}

/** When to look again: the next occurrence that did not run yet, even if the clock was set back a little. */
export function nextOccurrence(cron: CronExpression, since: number, now: number): number | undefined {
  return cron.next(since > now && since - now < CORRECTION_MS ? since : now);
}

/**
 * @param pointer JSON pointer of the field that holds the expression
 * @throws Problem invalid_field
 */
export function checkCron(text: string, pointer: string): void {
  parse(text, pointer);
}

function parse(text: string, pointer: string): Cron {
  const fields = text.split(' ');
  if (fields.length !== FIELDS.length) {
    throw invalid(text, pointer, 'five fields separated by single spaces are needed: minute hour day month weekday');
  }
  for (const [index, { name, allowed }] of FIELDS.entries()) {
    if (!allowed.test(fields[index] ?? '')) throw invalid(text, pointer, `the ${name} is not understood`);
  }
  const weekdays = (fields[4] ?? '').replace(/[/#]\d+/g, '').match(/\d+/g) ?? [];
  if (weekdays.some((day) => Number(day) < 1 || Number(day) > 7)) {
    throw invalid(text, pointer, 'days of the week are 1 (Sunday) to 7 (Saturday), or SUN to SAT');
  }
  try {
    // sloppyRanges: `5/15` means from 5 on, as on Cloudflare. alternativeWeekdays: 1 is Sunday.
    const cron = new Cron(text, {
      mode: '5-part',
      timezone: 'UTC',
      paused: true,
      alternativeWeekdays: true,
      sloppyRanges: true,
    });
    if (cron.nextRun(new Date(0)) === null) throw new Error('it never occurs');
    return cron;
  } catch (error) {
    throw invalid(text, pointer, (error as Error).message.replace(/^CronPattern: /, ''));
  }
}

function invalid(text: string, pointer: string, why: string): Problem {
  const detail = `The cron expression ${JSON.stringify(text.slice(0, 100))} is not acceptable: ${why}.`;
  return new Problem('invalid_field', detail, { errors: [{ pointer, detail: why }] });
}
