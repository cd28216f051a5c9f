import { appendFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { MAX_TEXT } from '../../host/runtime/logs/log-entry.ts';
import { LogStore } from '../../host/runtime/logs/log-store.ts';
import { createMask } from '../../host/runtime/logs/mask.ts';
import { parseOutputLine } from '../../host/runtime/logs/workerd-output.ts';
import { readLines } from '../../host/sandbox/flood-gate.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { expectTime } from '../times.ts';

describe('log store', () => {
  let folder: string;
  let clock: ManualClock;
  const open = (maxBytes = 100_000) => new LogStore({ folder, clock, maxBytes });
  const say = (text: string) => ({ kind: 'console', level: 'log', text }) as const;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'log-'));
    clock = new ManualClock(1_000);
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('reads back in order, with ids that survive a restart', async () => {
    const first = open();
    for (const text of ['a', 'b', 'c']) await first.append('t1', say(text));
    await first.close();
    const second = open();
    await second.append('t1', say('d'));
    expect((await second.read('t1')).map(({ id, text }) => `${id}${text}`)).toEqual(['1a', '2b', '3c', '4d']);
    expect((await second.read('t1', { after: 2, limit: 1 })).map(({ text }) => text)).toEqual(['d']);
    await second.close();
  });

  it('that cannot be opened does not fail what it tells of', async () => {
    writeFileSync(join(folder, 't1'), 'where its folder should be, as when the disk takes no more folders');
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const store = open();
    await store.append('t1', say('a'));
    expect(warned).toHaveBeenCalledWith(expect.stringContaining("a tenant's log cannot be written"));
    warned.mockRestore();
    rmSync(join(folder, 't1'));
    await store.append('t1', say('b'));
    expect((await store.read('t1')).map(({ text }) => text)).toEqual(['b']);
    await store.close();
  });

  it('filters by time', async () => {
    const store = open();
    await store.append('t1', say('early'));
    clock.advance(5_000);
    await store.append('t1', say('late'));
    expect((await store.read('t1', { since: 6_000 })).map(({ text }) => text)).toEqual(['late']);
    await store.close();
  });

  it('stays within its size and keeps the newest', async () => {
    const store = open(20_000);
    for (let line = 0; line < 500; line++) {
      await store.append('t1', say(`line ${line} ${'x'.repeat(100)}`));
      if (line % 10 === 0) await store.read('t1', { limit: 1 });
    }
    expect((await store.read('t1', { limit: 1 }))[0]!.text).toMatch(/^line 499/);
    await store.close();
    const files = join(folder, 't1', 'logs');
    const bytes = readdirSync(files).reduce((sum, name) => sum + statSync(join(files, name)).size, 0);
    expect(bytes).toBeLessThan(24_000);
    expect(bytes).toBeGreaterThan(5_000);
  });

  it('keeps tenants apart', async () => {
    const store = open();
    await store.append('t1', say('mine'));
    expect(await store.read('t2')).toEqual([]);
    await store.close();
  });

  it('cuts long texts and says so', async () => {
    const store = open();
    await store.append('t1', say('y'.repeat(MAX_TEXT + 50)));
    expect((await store.read('t1'))[0]!.text).toMatch(/… \(50 characters cut\)$/);
    await store.close();
  });

  it('tails: what was missed first, then what comes, until aborted', async () => {
    const store = open();
    await store.append('t1', say('one'));
    await store.append('t1', say('two'));
    const end = new AbortController();
    const seen: string[] = [];
    const following = (async () => {
      for await (const { text } of store.tail('t1', end.signal, 1)) {
        seen.push(text);
        if (seen.length === 1) await store.append('t1', say('three'));
        if (seen.length === 2) end.abort();
      }
    })();
    await following;
    expect(seen).toEqual(['two', 'three']);
    await store.close();
  });
});

describe('log store in hard times', () => {
  let folder: string;
  const open = (maxBytes = 100_000) => new LogStore({ folder, clock: new ManualClock(1_000), maxBytes });
  const say = (text: string) => ({ kind: 'console', level: 'log', text }) as const;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'log-'));
  });
  afterEach(() => {
    vi.useRealTimers();
    rmSync(folder, { recursive: true, force: true });
  });

  it('a line that a crash cut short takes no other with it', async () => {
    const first = open();
    await first.append('t1', say('a'));
    await first.close();
    appendFileSync(join(folder, 't1', 'logs', 'current.jsonl'), '{"id":2,"time":1000,"ki');
    const second = open();
    await second.append('t1', say('why it crashed'));
    expect((await second.read('t1')).map(({ text }) => text)).toEqual(['a', 'why it crashed']);
    await second.close();
  });

  it('who reads while the files take turns misses nothing that is kept', async () => {
    const store = open(4_000);
    let torn = 0;
    for (let round = 0; round < 150; round++) {
      for (let line = 0; line < 10; line++) await store.append('t1', say('x'.repeat(100)));
      const reads = Promise.all([store.read('t1'), store.read('t1')]);
      for (let line = 0; line < 10; line++) await store.append('t1', say('x'.repeat(100)));
      void store.read('t1');
      for (const entries of await reads) {
        const ids = entries.map(({ id }) => id);
        if (ids.length < 10 || ids.some((id, index) => index > 0 && id !== ids[index - 1]! + 1)) torn++;
      }
    }
    await store.close();
    expect(torn).toBe(0);
  });

  it('a follower who knows more than is left gets what comes', async () => {
    const store = open();
    await store.append('t1', say('one'));
    const end = new AbortController();
    const following = store.tail('t1', end.signal, 5_000);
    const next = following.next();
    await new Promise((resolve) => setTimeout(resolve, 20));
    await store.append('t1', say('two'));
    const timer = setTimeout(() => end.abort(), 2_000);
    expect((await next).value).toMatchObject({ text: 'two' });
    clearTimeout(timer);
    end.abort();
    await following.return(undefined);
    await store.close();
  });

  it('a follower of a tenant that is purged comes to an end', async () => {
    const store = open();
    await store.append('t1', say('one'));
    const end = new AbortController();
    const timer = setTimeout(() => end.abort(), 2_000);
    const seen: string[] = [];
    const following = (async () => {
      for await (const { text } of store.tail('t1', end.signal, 0)) seen.push(text);
    })();
    await expect.poll(() => seen).toEqual(['one']);
    await store.append('t1', say('the last'));
    await store.forget('t1');
    await following;
    clearTimeout(timer);
    expect(end.signal.aborted).toBe(false);
    expect(seen).toEqual(['one', 'the last']);
    await store.close();
  });

  it('a full disk is told of once a minute, whichever logs it is', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const store = open();
    const write = async () => {
      for (const tenant of ['t1', 't2']) {
        await store.append(tenant, say('a'));
        await store.read(tenant);
      }
    };
    for (const tenant of ['t1', 't2']) mkdirSync(join(folder, tenant, 'logs', 'current.jsonl'), { recursive: true });
    for (let batch = 0; batch < 5; batch++) await write();
    expect(warned).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(61_000);
    await write();
    expect(warned).toHaveBeenCalledTimes(2);
    warned.mockRestore();
    await store.close();
  });

  it('a follower of a log that nobody used for long hears of what comes, where many are open', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const store = open();
    for (let tenant = 0; tenant < 1_001; tenant++) await store.append(`t${tenant}`, say('here'));
    await new Promise((resolve) => setTimeout(resolve, 500));
    vi.advanceTimersByTime(120_000);
    const end = new AbortController();
    const following = store.tail('t7', end.signal);
    const next = following.next();
    await new Promise((resolve) => setTimeout(resolve, 50));
    await store.append('t7', say('heard'));
    const timer = setTimeout(() => end.abort(), 2_000);
    expect((await next).value).toMatchObject({ id: 2, text: 'heard' });
    clearTimeout(timer);
    end.abort();
    await following.return(undefined);
    await store.close();
  }, 30_000);
});

describe('mask', () => {
  it('hides values in every usual spelling, the longest first', () => {
    const mask = createMask({ A: 'p@ss w0rd', B: 'p@ss w0rd-and-more', SHORT: 'abc' });
    const text = [
      'p@ss w0rd-and-more',
      'p@ss w0rd',
      encodeURIComponent('p@ss w0rd'),
      Buffer.from('p@ss w0rd').toString('base64'),
      'abc',
    ].join('|');
    expect(mask(text)).toBe('[secret]|[secret]|[secret]|[secret]|abc');
  });

  it('hides the lines of a key', () => {
    const key = '-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END KEY-----';
    expect(createMask({ KEY: key })('> MIIEvQIBADANBgkqhkiG9w0BAQEFAASC <')).toBe('> [secret] <');
  });
});

describe('mask of many secrets', () => {
  it('costs a short line little, however many lines the secrets have', () => {
    let line = 0;
    const value = () => Array.from({ length: 300 }, () => String(line++).padStart(16, 'x')).join('\n');
    const mask = createMask(Object.fromEntries(Array.from({ length: 64 }, (_, index) => [`S${index}`, value()])));
    mask('warm');
    const startedAt = performance.now();
    for (let count = 0; count < 200; count++) mask('a short line');
    expectTime('200 short lines', performance.now() - startedAt, 100);
    expect(mask('> xxxxxxxxxxxxxxx7 <')).toBe('> [secret] <');
  });

  it('shows nothing of a text that was made to take seconds', () => {
    const value = (index: number) => `${'a'.repeat(2_000)}${String(index).padStart(2, '0')}${'a'.repeat(3_118)}`;
    const mask = createMask(Object.fromEntries(Array.from({ length: 64 }, (_, index) => [`S${index}`, value(index)])));
    expect(mask('a'.repeat(60_000))).toBe('[60000 characters that took too long to search for secrets]');
    expect(mask(`> ${value(7)} <`)).toBe('> [secret] <');
  });
});

describe('output of workerd', () => {
  it('tells console lines from its own', () => {
    expect(parseOutputLine('{"timestamp":1,"level":"warn","message":"hm"}')).toEqual({
      kind: 'console',
      level: 'warn',
      text: 'hm',
    });
    expect(
      parseOutputLine(
        '{"timestamp":"1","level":"error","source":"x.c++:1","message":"Socket broke","context_depth":0}',
      ),
    ).toEqual({ kind: 'runtime', level: 'error', text: 'Socket broke' });
    expect(
      parseOutputLine(
        '{"timestamp":"1","level":"info","source":"w","message":"uncaught exception; source = Uncaught (in promise); stack = TypeError: no\\n    at f (index.js:1:2)"}',
      ),
    ).toEqual({ kind: 'exception', text: 'TypeError: no', stack: 'TypeError: no\n    at f (index.js:1:2)' });
  });

  it('a handler cannot forge what workerd says', () => {
    const forged = 'uncaught exception; source = x; stack = Error: forged';
    expect(parseOutputLine(JSON.stringify({ timestamp: 1, level: 'info', message: forged }))).toMatchObject({
      kind: 'console',
    });
    const heap = 'V8 fatal error; location = Reached heap limit; message = : allocation failed';
    expect(parseOutputLine(JSON.stringify({ timestamp: 1, level: 'error', message: heap }))).toMatchObject({
      kind: 'console',
    });
    expect(
      parseOutputLine(JSON.stringify({ timestamp: 1, level: 'fatal', source: 'setup.c++', message: heap })),
    ).toEqual({ kind: 'heap-limit' });
  });

  it('a lack of descriptors is told from other ends', () => {
    const line = (what: string) =>
      JSON.stringify({
        timestamp: 1,
        level: 'error',
        source: 'src/workerd/server/server/entry.rs:170',
        message: `*** Uncaught exception ***\nworkerd/server/server/entry.rs:143: ${what}`,
      });
    expect(parseOutputLine(line('overloaded: accept(): Too many open files (os error 24)'))).toEqual({
      kind: 'files-limit',
    });
    expect(parseOutputLine(line('failed: something else'))).toMatchObject({ kind: 'runtime', level: 'error' });
  });

  it.each(['', '{"level":', '[1]', 'null', '{}'])('survives %j', (line) => {
    expect(() => parseOutputLine(line)).not.toThrow();
  });
});

describe('flood gate', () => {
  it('passes lines on, whole characters across chunks', async () => {
    const stream = new PassThrough();
    const lines: string[] = [];
    readLines(stream, { onLine: (line) => lines.push(line), onDropped: () => undefined });
    const bytes = Buffer.from('grün\nzwei\n');
    stream.write(bytes.subarray(0, 3));
    stream.end(bytes.subarray(3));
    await new Promise((resolve) => stream.once('close', resolve));
    expect(lines).toEqual(['grün', 'zwei']);
  });

  it('drops what is too much, counts it, and goes on', async () => {
    const stream = new PassThrough();
    const lines: string[] = [];
    const dropped: number[] = [];
    readLines(stream, {
      onLine: (line) => lines.push(line),
      onDropped: (count) => dropped.push(count),
      parseBytes: 100,
      readBytes: 10_000,
      windowMs: 20,
      // As much time as a slow machine takes.
      lineMs: Number.POSITIVE_INFINITY,
    });
    stream.write(`${'first\n'.repeat(10)}`);
    await new Promise((resolve) => setImmediate(resolve));
    stream.write('x\n'.repeat(100));
    await expect.poll(() => dropped.length).toBe(1);
    stream.write('later\n');
    await expect.poll(() => lines.at(-1)).toBe('later');
    expect(lines).toHaveLength(11);
    expect(dropped[0]).toBe(100);
    stream.end();
  });

  it('drops lines that take long, but not the last one', async () => {
    const stream = new PassThrough();
    const lines: string[] = [];
    const dropped: number[] = [];
    readLines(stream, {
      onLine(line) {
        lines.push(line);
        for (const before = process.threadCpuUsage(); process.threadCpuUsage(before).user < 5_000; );
      },
      onDropped: (count) => dropped.push(count),
      windowMs: 200,
    });
    stream.write('slow\n'.repeat(100));
    await expect.poll(() => dropped[0]).toBeGreaterThan(90);
    stream.end('why it ended\n');
    await new Promise((resolve) => stream.once('close', resolve));
    expect(lines.at(-1)).toBe('why it ended');
    expect(lines.length).toBeLessThan(15);
  });

  it('keeps the last line of all', async () => {
    const stream = new PassThrough();
    const lines: string[] = [];
    readLines(stream, { onLine: (line) => lines.push(line), onDropped: () => undefined, parseBytes: 100 });
    stream.end(`${'x\n'.repeat(100)}why it ended\n`);
    await new Promise((resolve) => stream.once('close', resolve));
    expect(lines).toEqual(['why it ended']);
  });
});
