import { describe, expect, test } from 'vitest';
import { CronExpression, checkCron, dueOccurrence, nextOccurrence } from '../../host/scheduler/cron-expression.ts';
import { Problem } from '../../host/shared/problem.ts';

const at = (text: string) => Date.parse(`${text}Z`);
const iso = (ms: number | undefined) => (ms === undefined ? undefined : new Date(ms).toISOString().slice(0, 19));

describe('next occurrence', () => {
  test.each([
    ['* * * * *', '2026-11-21T00:00:00', '2026-11-21T00:01:00'],
    ['*/15 * * * *', '2026-11-21T23:59:59', '2026-11-22T00:00:00'],
    ['5/20 * * * *', '2026-11-21T00:06:00', '2026-11-21T00:25:00'],
    ['0 0 * * 1', '2026-11-21T00:00:00', '2026-11-22T00:00:00'],
    ['0 0 * * SUN', '2026-11-21T00:00:00', '2026-11-22T00:00:00'],
    ['0 0 * * 7', '2026-11-20T00:00:00', '2026-11-21T00:00:00'],
    ['0 17 * * MON-FRI', '2026-11-21T00:00:00', '2026-11-23T17:00:00'],
    ['0 0 L * *', '2028-02-10T00:00:00', '2028-02-29T00:00:00'],
    ['59 23 LW * *', '2026-01-10T00:00:00', '2026-01-30T23:59:00'],
    ['0 0 * * MON#2', '2026-11-21T00:00:00', '2026-12-14T00:00:00'],
    ['0 0 * * 6L', '2026-11-21T00:00:00', '2026-11-27T00:00:00'],
    ['0 0 29 2 *', '2026-11-21T00:00:00', '2028-02-29T00:00:00'],
    ['0 0 1 JAN *', '2026-11-21T00:00:00', '2027-01-01T00:00:00'],
    ['0 0 13 * FRI', '2026-11-21T00:00:00', '2026-11-27T00:00:00'],
  ])('%s after %s is %s', (cron, from, expected) => {
    expect(iso(new CronExpression(cron).next(at(from)))).toBe(expected);
  });
});

describe('refused expressions', () => {
  test.each([
    '',
    '* * * *',
    '* * * * * *',
    '@daily',
    '* * * * MOON',
    '60 * * * *',
    '* 24 * * *',
    '0 0 0 * *',
    '0 0 32 * *',
    '0 0 * 13 *',
    '0 0 * * 0',
    '0 0 * * 8',
    '0 0 30 2 *',
    '*/0 * * * *',
    '? * * * *',
    '0 0 ? * 2',
    'a b c d e',
    '*  * * * *',
    ' * * * * *',
    '1,,2 * * * *',
    '-1 * * * *',
    '0 0 * * 2-9',
    '* * * * *\n',
  ])('%j', (cron) => {
    expect(() => checkCron(cron, '/crons/3')).toThrow(Problem);
    try {
      checkCron(cron, '/crons/3');
    } catch (error) {
      expect(error).toMatchObject({ code: 'invalid_field', errors: [{ pointer: '/crons/3' }] });
    }
  });
});

describe('which occurrence is due', () => {
  const hourly = new CronExpression('0 * * * *');
  const due = (since: string, now: string) => iso(dueOccurrence(hourly, at(since), at(now)));

  test('none before its time, the one at its very second', () => {
    expect(due('2026-11-21T10:00:00', '2026-11-21T10:59:59')).toBeUndefined();
    expect(due('2026-11-21T10:00:00', '2026-11-21T11:00:00')).toBe('2026-11-21T11:00:00');
    expect(dueOccurrence(hourly, at('2026-11-21T10:00:00'), at('2026-11-21T11:00:00') - 1)).toBeUndefined();
  });

  test('of many that were missed only the last', () => {
    expect(due('2026-11-18T10:00:00', '2026-11-21T11:30:00')).toBe('2026-11-21T11:00:00');
  });

  test('none that ran already, also after the clock was set back', () => {
    expect(due('2026-11-21T11:00:00', '2026-11-21T11:30:00')).toBeUndefined();
    expect(due('2026-11-21T11:00:00', '2026-11-21T10:59:00')).toBeUndefined();
  });

  test('a clock set back a little does not repeat an hour, one set back far does start over', () => {
    const next = (since: string, now: string) => iso(nextOccurrence(hourly, at(since), at(now)));
    expect(next('2026-11-21T11:00:00', '2026-11-21T10:59:00')).toBe('2026-11-21T12:00:00');
    expect(next('2026-11-21T11:00:00', '2026-11-20T10:59:00')).toBe('2026-11-20T11:00:00');
  });
});
