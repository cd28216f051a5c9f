/** The operator's console without a browser: sessions and their ends, how often may be guessed, charts, and answers as text. */
import { describe, expect, it } from 'vitest';
import { chart } from '../../host/control/console/chart.ts';
import { Sessions } from '../../host/control/console/sessions.ts';
import { json, milliseconds, usd } from '../../host/control/console/words.ts';

const MINUTE = 60_000;

describe('sessions', () => {
  const make = () => {
    const clock = { now: 0 };
    return { clock, sessions: new Sessions(() => clock.now) };
  };

  it('end when nobody uses them for half an hour, and after twelve hours in any case', () => {
    const { clock, sessions } = make();
    const id = sessions.open('operator', false);
    const idle = sessions.open('operator', false);
    for (let minute = 0; minute < 12 * 60; minute += 20) {
      clock.now = minute * MINUTE;
      expect([minute, sessions.find(id, false)?.session.role]).toEqual([minute, 'operator']);
    }
    expect(sessions.find(idle, false)).toBeUndefined();
    clock.now = 12 * 60 * MINUTE;
    expect(sessions.find(id, false)).toBeUndefined();
  });

  it('count only by the cookie that they were opened with', () => {
    const { sessions } = make();
    const id = sessions.open('reader', true);
    expect(sessions.find(id, false)).toBeUndefined();
    expect(sessions.find(id, true)?.session.role).toBe('reader');
    expect(sessions.find(`${id}x`, true)).toBeUndefined();
    expect(sessions.find('', true)).toBeUndefined();
  });

  it('are few: the one that was idle for longest gives way', () => {
    const { clock, sessions } = make();
    const ids = Array.from({ length: 32 }, () => {
      clock.now += 1;
      return sessions.open('operator', false);
    });
    clock.now += 1;
    sessions.find(ids[0] ?? '', false);
    sessions.open('operator', false);
    expect(ids.filter((id) => !sessions.find(id, false))).toEqual([ids[1]]);
  });

  it('end with the token of their role, and what goes on in them, too', () => {
    const { sessions } = make();
    const [operator, reader] = [sessions.open('operator', false), sessions.open('reader', false)];
    const ended = sessions.find(operator, false)?.ended;
    const { code } = sessions.code('operator');
    sessions.endAll('operator');
    expect(ended?.aborted).toBe(true);
    expect(sessions.find(operator, false)).toBeUndefined();
    expect(sessions.find(reader, false)).toBeDefined();
    expect(sessions.useCode(code)).toBeUndefined();
  });
});

describe('codes of links', () => {
  it('work once, for ten minutes, and a few at a time', () => {
    const clock = { now: 0 };
    const sessions = new Sessions(() => clock.now);
    const { code } = sessions.code('reader');
    expect(sessions.useCode(code)).toBe('reader');
    expect(sessions.useCode(code)).toBeUndefined();
    const late = sessions.code('operator').code;
    clock.now = 10 * MINUTE;
    expect(sessions.useCode(late)).toBeUndefined();
    const codes = Array.from({ length: 20 }, () => sessions.code('operator').code);
    expect(codes.filter((one) => sessions.useCode(one)).length).toBe(16);
  });
});

describe('guesses', () => {
  it('are ten, then one in six seconds', () => {
    const clock = { now: 1e9 };
    const sessions = new Sessions(() => clock.now);
    for (let guess = 0; guess < 10; guess++) {
      expect(sessions.waitSeconds()).toBe(0);
      sessions.failed();
    }
    const wait = sessions.waitSeconds();
    expect(wait).toBe(6);
    clock.now += (wait - 1) * 1_000;
    expect(sessions.waitSeconds()).toBeGreaterThan(0);
    clock.now += 1_000;
    expect(sessions.waitSeconds()).toBe(0);
    sessions.failed();
    expect(sessions.waitSeconds()).toBeGreaterThan(0);
    clock.now += 61_000;
    for (let guess = 0; guess < 10; guess++, sessions.failed()) expect(sessions.waitSeconds()).toBe(0);
  });
});

describe('charts', () => {
  const at = ['2026-11-25T10:00:00.000Z', '2026-11-25T10:01:00.000Z', '2026-11-25T10:02:00.000Z'];
  const draw = (values: (number | null)[], isWhole = false) =>
    String(
      chart({ id: 'x', title: 'A <b>title</b>', at, format: String, isWhole, series: [{ name: '"all"', values }] }),
    );

  it('have a title, a description and their numbers as a table, all escaped', () => {
    const svg = draw([1, 2, 3]);
    expect(svg).not.toContain('<b>');
    expect(svg).toContain('<title id="x-title">A &lt;b&gt;title&lt;/b&gt;</title>');
    expect(svg).toContain('&quot;all&quot;: 3 last, 3 at most');
    expect(svg.match(/<tr><td>2026-11-25 10:0\d<\/td><td class="number">\d<\/td><\/tr>/g)?.length).toBe(3);
    expect(svg).not.toMatch(/NaN|undefined|style=|onload/);
  });

  it('leave gaps where nothing is known, and draw one step alone, and nothing at all', () => {
    expect(draw([1, null, 3]).match(/class="line"/g)?.length).toBe(2);
    expect(draw([1, null, 3])).toContain('<td class="number">–</td>');
    expect(draw([0, 0, 0])).not.toMatch(/NaN|Infinity/);
    expect(draw([null, null, null])).toContain('Nothing is known');
    expect(draw([1, 1, 1], true).match(/text-anchor="end">1</g)?.length).toBe(1);
  });
});

describe('answers of any API', () => {
  it('are text, however they are nested', () => {
    const evil = '<script>alert(1)</script>';
    const text = String(
      json({ [evil]: [{ name: evil, more: [evil, { deep: { deeper: { deepest: evil } } }] }], n: 1 }),
    );
    expect(text).not.toContain('<script>');
    expect(text).toContain('&lt;script&gt;');
    expect(String(json([{ a: 1 }, { b: true }]))).toContain('<table');
    expect([json(null), json(true), json({}), json([])]).toEqual(['–', 'yes', 'none', 'none']);
  });

  it('have short numbers', () => {
    expect([milliseconds(0.25), milliseconds(12.3), milliseconds(1_500), milliseconds(60_000)]).toEqual([
      '0.3 ms',
      '12 ms',
      '1.5 s',
      '60 s',
    ]);
    expect([usd('0.2'), usd('1234567.5'), usd('3')]).toEqual(['$0.20', '$1,234,567.50', '$3.00']);
  });
});
