/** How the calls of bindings are read: their heads, and their bodies at the speed of whoever consumes them. */
import { describe, expect, it } from 'vitest';
import type { Block } from '../../host/http/message/blocks.ts';
import { WireError } from '../../host/http/message/wire-error.ts';
import { CallBody } from '../../host/storage/calls/body.ts';
import { parseCallHead } from '../../host/storage/calls/head.ts';
import { BodyCut } from '../../host/storage/refusal.ts';

describe('the head of a call', () => {
  it('has method, target and fields, whose names are in lower case', () => {
    const head = parseCallHead('PUT /a%2Fb?urlencoded=true HTTP/1.1\r\nHost: kv\r\nCF-KV-Metadata:  {"a":1} \r\n');
    expect(head).toMatchObject({ method: 'PUT', target: '/a%2Fb?urlencoded=true', keepAlive: true });
    expect(head.fields.get('cf-kv-metadata')).toBe('{"a":1}');
    expect(head.framing).toEqual({ kind: 'none' });
  });

  it('may hold DEL and UTF-8 in its values, byte for byte', () => {
    const head = parseCallHead('GET / HTTP/1.1\r\nCF-R2-Request: k\x7f\xc3\xa9\r\n');
    expect(head.fields.get('cf-r2-request')).toBe('k\x7f\xc3\xa9');
  });

  it('needs no Host and no fields at all', () => {
    expect(parseCallHead('GET / HTTP/1.1\r\n').fields.size).toBe(0);
  });

  it.each([
    ['Content-Length: 5\r\n', { kind: 'length', length: 5 }],
    ['Transfer-Encoding: Chunked\r\n', { kind: 'chunked' }],
  ])('frames the body: %j', (fields, framing) => {
    expect(parseCallHead(`PUT / HTTP/1.1\r\n${fields}`).framing).toEqual(framing);
  });

  it.each(['GET / HTTP/1.1\r\nConnection: close\r\n', 'GET / HTTP/1.0\r\n'])('ends the connection: %j', (text) => {
    expect(parseCallHead(text).keepAlive).toBe(false);
  });

  it.each([
    ['http://fake-host/a%2Fb?c=http://d', '/a%2Fb?c=http://d'],
    ['https://x:80/', '/'],
    ['/http://x', '/http://x'],
  ])('takes the path out of a whole URL: %s', (url, target) => {
    expect(parseCallHead(`GET ${url} HTTP/1.1\r\n`).target).toBe(target);
  });

  it.each([
    'GET http://fake-host HTTP/1.1\r\n',
    'GET ftp://fake-host/ HTTP/1.1\r\n',
    'GET kv HTTP/1.1\r\n',
    'GET / HTTP/2.0\r\n',
    'get / HTTP/1.1\r\n',
    'GET / /x HTTP/1.1\r\n',
    'GET / HTTP/1.1\r\nno colon\r\n',
    'GET / HTTP/1.1\r\nA : b\r\n',
    'GET / HTTP/1.1\r\nA: b\0\r\n',
    'GET / HTTP/1.1\r\nA: b\nB: c\r\n',
    'GET / HTTP/1.1\r\n folded: b\r\n',
    'PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n',
    'PUT / HTTP/1.1\r\nContent-Length: -1\r\n',
    'PUT / HTTP/1.1\r\nContent-Length: 1e3\r\n',
    'PUT / HTTP/1.1\r\nContent-Length: 9999999999999999\r\n',
    'PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n',
    'PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n',
  ])('is refused: %j', (text) => {
    expect(() => parseCallHead(text)).toThrow(WireError);
  });
});

/** A source that keeps what was asked of it, and memory that is used again after each call. */
function rig(length: number | undefined) {
  const asked: string[] = [];
  const source = {
    receive: () => void asked.push('receive'),
    sendContinue: () => {},
    pause: () => void asked.push('pause'),
    resume: () => void asked.push('resume'),
  };
  const body = new CallBody(source, length === undefined ? { kind: 'chunked' } : { kind: 'length', length });
  const memory = Buffer.alloc(1_048_576);
  const held = { count: 0 };
  const block: Block = { hold: () => void held.count++, release: () => void held.count-- };
  const bring = (text: string, inBlock = false) => {
    const chunk = memory.subarray(0, memory.write(text));
    body.data(chunk, inBlock ? block : undefined);
    if (!inBlock) memory.fill(0);
  };
  return { body, asked, bring, held };
}

const text = (pieces: Buffer[] | undefined) => Buffer.concat(pieces ?? []).toString();

describe('the body of a call', () => {
  it('lets nothing come before somebody asks', async () => {
    const { body, asked, bring } = rig(3);
    expect(asked).toEqual([]);
    const all = body.all(10);
    expect(asked).toEqual(['receive']);
    bring('abc');
    body.end();
    expect(text(await all)).toBe('abc');
  });

  it('gives its front and then the rest, wherever the pieces end', async () => {
    const { body, bring } = rig(9);
    const front = body.take(4);
    bring('ab');
    bring('cdef');
    expect((await front).toString()).toBe('abcd');
    const rest = body.all(100);
    bring('ghi');
    body.end();
    expect(text(await rest)).toBe('efghi');
  });

  it('holds pieces in blocks until it is released', async () => {
    const { body, bring, held } = rig(6);
    const all = body.all(100);
    bring('abcdef', true);
    body.end();
    expect(text(await all)).toBe('abcdef');
    expect(held.count).toBe(1);
    body.release();
    body.release();
    expect(held.count).toBe(0);
  });

  it('says where it is more than the limit, and goes on as a stream whose pieces are nobody else’s', async () => {
    const { body, bring, held } = rig(undefined);
    const all = body.all(3);
    bring('abcd', true);
    expect(await all).toBeUndefined();
    const pieces: Buffer[] = [];
    const reading = (async () => {
      for await (const piece of body) pieces.push(piece);
    })();
    await new Promise(setImmediate);
    bring('efgh', true);
    bring('0000', false);
    body.end();
    await reading;
    expect(held.count).toBe(1);
    expect(text(pieces.slice(1))).toBe('efgh0000');
  });

  it('pauses its source where nobody takes what comes, and goes on when somebody does', async () => {
    const { body, bring, asked } = rig(undefined);
    const reading = body[Symbol.asyncIterator]();
    const first = reading.next();
    bring('x'.repeat(200_000));
    expect(asked).toEqual(['receive', 'pause']);
    expect((await first).value?.length).toBe(200_000);
    expect(asked).toEqual(['receive', 'pause', 'resume']);
  });

  it('is cut when the caller goes away before its end', async () => {
    const { body, bring } = rig(10);
    const all = body.all(100);
    bring('abc');
    body.cut();
    await expect(all).rejects.toThrow(BodyCut);
    await expect(body.take(20)).rejects.toThrow(BodyCut);
  });

  it('is drained without being kept', async () => {
    const { body, bring, asked, held } = rig(undefined);
    const drained = body.drain();
    for (let index = 0; index < 10; index++) bring('x'.repeat(100_000), true);
    body.end();
    await drained;
    expect({ asked, held: held.count }).toEqual({ asked: ['receive'], held: 0 });
  });

  it('of no bytes has ended before it began', async () => {
    const { body, asked } = rig(0);
    expect(text(await body.all(10))).toBe('');
    await body.drain();
    expect(asked).toEqual([]);
  });
});
