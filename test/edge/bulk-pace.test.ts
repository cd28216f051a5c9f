/** Large answers wait for their turns while several tenants are served, and only then. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { BulkLine, BulkPace } from '../../host/edge/bulk-pace.ts';
import { Contention } from '../../host/edge/contention.ts';
import type { BulkReader } from '../../host/http/client/connection.ts';

const PIECE = 131_072;

/** Reads pieces for as long as it may. */
class Reader implements BulkReader {
  bytes = 0;
  reading = true;
  readonly #line: BulkLine;

  constructor(line: BulkLine) {
    this.#line = line;
    line.enter(this);
  }

  hold(): void {
    this.reading = false;
  }

  proceed(): void {
    this.reading = true;
  }

  /** What a turn of the event loop brings. */
  turn(): void {
    if (!this.reading) return;
    this.bytes += PIECE;
    this.#line.spend(PIECE);
  }
}

/** So many turns of an event loop, ten a millisecond; somebody else asks now and then. */
function run(readers: Reader[], ms: number, contention?: Contention): void {
  for (let at = 0; at < ms; at += 1) {
    contention?.seen('one');
    if (at % 10 === 0) contention?.seen('other');
    for (let turn = 0; turn < 10; turn += 1) for (const reader of readers) reader.turn();
    vi.advanceTimersByTime(1);
  }
}

const sum = (readers: Reader[]) => readers.reduce((bytes, reader) => bytes + reader.bytes, 0);

describe('the pace of large answers', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test('a tenant that is alone is not paced', () => {
    const line = new BulkLine(new BulkPace(new Contention()));
    const readers = Array.from({ length: 20 }, () => new Reader(line));
    run(readers, 100);
    expect(sum(readers)).toBe(20 * 1_000 * PIECE);
  });

  test('beside another tenant, half a gigabyte a second, evenly', () => {
    const contention = new Contention();
    const pace = new BulkPace(contention);
    const line = new BulkLine(pace);
    const readers = Array.from({ length: 20 }, () => new Reader(line));
    run(readers, 1_000, contention);
    expect(sum(readers)).toBeGreaterThan(0.9 * 524_288_000);
    expect(sum(readers)).toBeLessThan(1.1 * 524_288_000);
    const each = readers.map(({ bytes }) => bytes);
    expect(Math.max(...each)).toBeLessThan(1.2 * Math.min(...each));
  });

  test('one answer is not drowned by a hundred of another tenant', () => {
    const contention = new Contention();
    const pace = new BulkPace(contention);
    const many = new BulkLine(pace);
    const hundred = Array.from({ length: 100 }, () => new Reader(many));
    const single = new Reader(new BulkLine(pace));
    run([...hundred, single], 1_000, contention);
    // It goes first once in each round; in one queue with them it would get a hundredth.
    expect(single.bytes).toBeGreaterThan(0.3 * sum(hundred));
  });

  test('a second after the last request of another it is alone again, and nobody waits', () => {
    const contention = new Contention();
    const pace = new BulkPace(contention);
    const line = new BulkLine(pace);
    const readers = Array.from({ length: 20 }, () => new Reader(line));
    run(readers, 100, contention);
    run(readers, 1_100);
    const before = sum(readers);
    run(readers, 10);
    expect(sum(readers) - before).toBe(20 * 100 * PIECE);
  });

  test('who stops reading leaves the others their turns, and waits again when it comes back', () => {
    const contention = new Contention();
    const pace = new BulkPace(contention);
    const line = new BulkLine(pace);
    const readers = Array.from({ length: 10 }, () => new Reader(line));
    run(readers, 50, contention);
    const [first, ...rest] = readers;
    if (!first) return;
    first.reading = false;
    line.leave(first);
    const before = sum(rest);
    run(rest, 100, contention);
    expect(sum(rest) - before).toBeGreaterThan(0.8 * 52_428_800);
    line.enter(first);
    expect(first.reading).toBe(false);
    const held = first.bytes;
    run(readers, 100, contention);
    expect(first.bytes).toBeGreaterThan(held);
  });

  test('nothing is left when all have gone', () => {
    const contention = new Contention();
    const pace = new BulkPace(contention);
    const line = new BulkLine(pace);
    const readers = Array.from({ length: 10 }, () => new Reader(line));
    run(readers, 50, contention);
    for (const reader of readers) line.leave(reader);
    vi.advanceTimersByTime(1_010);
    expect(pace.holding).toBe(false);
    expect(pace.lines.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});
