/** What a watch tells: each change once, confirmed and armed as its trigger says. */
import { describe, expect, test } from 'vitest';
import type { Deal } from '../../builtin-tenants/deals/src/prices/publish.ts';
import { emptyMemory, evaluate, type Memory } from '../../builtin-tenants/deals/src/watches/evaluate.ts';
import { EVENTS, parseWatch, type Trigger } from '../../builtin-tenants/deals/src/watches/watch.ts';
import { deal } from './support/parts.ts';

const all: Trigger = { on: [...EVENTS], min_change_bps: 0, confirm: 1, rearm: 0, notify_initial: true };

/** Runs evaluations one after the other; what each of them told, as `type:id`. */
function run(trigger: Partial<Trigger>, ...rounds: Deal[][]): string[][] {
  let memory: Memory = emptyMemory();
  return rounds.map((matching) => {
    // As it is stored in between.
    const step = evaluate(JSON.parse(JSON.stringify(memory)) as Memory, matching, { ...all, ...trigger });
    memory = step.memory;
    return step.events.map(({ type, deal: { id } }) => `${type}:${id}`);
  });
}

const a = (minor: number, more: Partial<Deal> = {}) => deal('a', minor, more);

describe('the first evaluation', () => {
  test('is silent unless it shall tell', () => {
    expect(run({ notify_initial: false }, [a(100)], [a(100)], [a(90)])).toEqual([[], [], ['new_low:a', 'drop:a']]);
    expect(run({ notify_initial: true }, [a(100)], [a(100)])).toEqual([['enter:a'], []]);
  });

  test('silent or not, what comes later enters', () => {
    expect(run({ notify_initial: false }, [], [a(100)])).toEqual([[], ['enter:a']]);
    expect(run({ notify_initial: false, confirm: 2 }, [], [a(100)], [a(100)])).toEqual([[], [], ['enter:a']]);
  });
});

describe('what is remembered', () => {
  test('is what matches now before what has gone', () => {
    const some = (from: number) => Array.from({ length: 200 }, (_, index) => deal(`d${from + index}`, 100));
    const told = run({ on: ['enter'], rearm: 100 }, some(0), some(200), some(400), some(400), some(400));
    expect(told.map(({ length }) => length)).toEqual([200, 200, 200, 0, 0]);
  });
});

describe('prices', () => {
  test('drops, rises and new lows are told once each', () => {
    expect(run({}, [a(100)], [a(90)], [a(90)], [a(95)], [a(92)], [a(89)])).toEqual([
      ['enter:a'],
      ['new_low:a', 'drop:a'],
      [],
      ['rise:a'],
      ['drop:a'],
      ['new_low:a', 'drop:a'],
    ]);
  });

  test('only as far as they matter: small steps add up until they do', () => {
    expect(run({ min_change_bps: 500 }, [a(1_000)], [a(980)], [a(960)], [a(949)], [a(945)])).toEqual([
      ['enter:a'],
      [],
      [],
      ['new_low:a', 'drop:a'],
      [],
    ]);
  });

  test('a low that crept in by small steps is still news when a change matters', () => {
    expect(run({ min_change_bps: 500, on: ['new_low'] }, [a(1_000)], [a(960)], [a(940)])).toEqual([
      [],
      [],
      ['new_low:a'],
    ]);
  });

  test('only what was asked for is told', () => {
    expect(run({ on: ['rise'] }, [a(100)], [a(90)], [a(95)], [])).toEqual([[], [], ['rise:a'], []]);
  });

  test('a price that flaps A→B→A→B is told as it moves, a new low only once', () => {
    expect(run({}, [a(100)], [a(90)], [a(100)], [a(90)])).toEqual([
      ['enter:a'],
      ['new_low:a', 'drop:a'],
      ['rise:a'],
      ['drop:a'],
    ]);
  });
});

describe('coming and going', () => {
  test('what leaves expires, and enters again', () => {
    expect(run({}, [a(100)], [], [], [a(100)])).toEqual([['enter:a'], ['expire:a'], [], ['enter:a']]);
  });

  test('confirm: so many evaluations in a row must agree', () => {
    expect(run({ confirm: 3 }, [a(100)], [a(100)], [], [a(100)], [a(100)], [a(100)], [a(100)])).toEqual([
      [],
      [],
      [],
      [],
      [],
      ['enter:a'],
      [],
    ]);
    expect(run({ confirm: 2 }, [a(100)], [a(100)], [], [a(100)], [], [], [])).toEqual([
      [],
      ['enter:a'],
      [],
      [],
      [],
      ['expire:a'],
      [],
    ]);
  });

  test('rearm: what flaps in and out does not enter again before', () => {
    expect(run({ rearm: 2, on: ['enter'] }, [a(100)], [], [a(100)], [], [], [a(100)], [], [], [], [a(100)])).toEqual([
      ['enter:a'],
      [],
      [],
      [],
      [],
      [],
      [],
      [],
      [],
      ['enter:a'],
    ]);
  });

  test('stock that comes back is told', () => {
    const none = { availability: 'out_of_stock' };
    expect(run({ on: ['restock'] }, [a(100)], [a(100, none)], [a(100, none)], [a(100)])).toEqual([
      [],
      [],
      [],
      ['restock:a'],
    ]);
  });

  test('many deals are many stories', () => {
    expect(run({}, [a(1), deal('b', 1)], [deal('b', 2), deal('c', 1)])).toEqual([
      ['enter:a', 'enter:b'],
      ['rise:b', 'enter:c', 'expire:a'],
    ]);
  });

  test('the memory is bounded', () => {
    const crowd = Array.from({ length: 800 }, (_, index) => deal(`d${index}`, 1));
    const { memory } = evaluate(emptyMemory(), crowd, all);
    expect(Object.keys(memory.deals)).toHaveLength(500);
  });
});

describe('a watch as it is written', () => {
  const parse = (document: unknown) => parseWatch(new TextEncoder().encode(JSON.stringify(document)));
  const good = { query: { q: 'lamp' }, trigger: { on: ['enter'] } };

  test('has defaults', () => {
    expect(parse(good)).toEqual({
      query: { q: 'lamp' },
      trigger: { on: ['enter'], min_change_bps: 0, confirm: 1, rearm: 0, notify_initial: false },
      every_s: 3_600,
      delivery: { feed: true },
    });
  });

  test.each([
    ['/query', { ...good, query: undefined }],
    ['/query/magic', { ...good, query: { magic: 1 } }],
    ['/query/max_price_minor', { ...good, query: { max_price_minor: 1 } }],
    ['/trigger/on', { ...good, trigger: { on: [] } }],
    ['/trigger/on/0', { ...good, trigger: { on: ['explode'] } }],
    ['/trigger/confirm', { ...good, trigger: { on: ['enter'], confirm: 0 } }],
    ['/every_s', { ...good, every_s: 899 }],
    ['/every_s', { ...good, every_s: 900.5 }],
    ['/delivery/webhook', { ...good, delivery: { webhook: 'ftp://example.com/' } }],
    ['/delivery/webhook', { ...good, delivery: { webhook: 'nonsense' } }],
    ['/code', { ...good, code: 'true' }],
  ])('a fault at %s is named', (pointer, document) => {
    expect(() => parse(document)).toThrow(`${pointer}: `);
  });

  test('no JSON, broken UTF-8 and deep nesting are refused', () => {
    for (const text of ['', 'x', '[', `${'['.repeat(60_000)}`])
      expect(() => parseWatch(new TextEncoder().encode(text))).toThrow('not JSON');
    expect(() => parseWatch(new Uint8Array([0x22, 0xff, 0x22]))).toThrow('not JSON');
  });
});
