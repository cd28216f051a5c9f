/** Bodies by length, chunked and until the end of the connection. */
import { describe, expect, test } from 'vitest';
import { BodyDecoder } from '../../host/http/message/body.ts';
import type { Framing } from '../../host/http/message/framing.ts';
import { WireError } from '../../host/http/message/wire-error.ts';

function read(framing: Framing, text: string, step = text.length) {
  const decoder = new BodyDecoder(framing);
  const result = { body: '', trailers: undefined as string | undefined, rest: '', done: false };
  const reader = {
    data: (chunk: Buffer) => {
      result.body += chunk.toString('latin1');
    },
    end: (trailers: string) => {
      expect(result.trailers).toBeUndefined();
      result.trailers = trailers;
    },
  };
  const bytes = Buffer.from(text, 'latin1');
  for (let at = 0; at < bytes.length; at += step) {
    const piece = bytes.subarray(at, at + step);
    const used = decoder.done ? 0 : decoder.feed(piece, 0, reader);
    result.rest += piece.subarray(used).toString('latin1');
  }
  result.done = decoder.done;
  return result;
}

const CHUNKED: Framing = { kind: 'chunked' };

describe.each([1, 2, 3, 7, 1000])('in pieces of %i', (step) => {
  test('by length', () => {
    expect(read({ kind: 'length', length: 5 }, 'helloREST', step)).toEqual({
      body: 'hello',
      trailers: '',
      rest: 'REST',
      done: true,
    });
  });

  test('chunked, with extensions and trailers', () => {
    const text = '5\r\nhello\r\nA;a=b;c="d"\r\n 123456789\r\n0\r\nX-Sum: 1\r\nSet-Cookie: no=1\r\n\r\nREST';
    expect(read(CHUNKED, text, step)).toEqual({
      body: 'hello 123456789',
      trailers: 'X-Sum: 1\r\n',
      rest: 'REST',
      done: true,
    });
  });

  test('until the connection ends', () => {
    expect(read({ kind: 'close' }, 'all of it', step)).toMatchObject({ body: 'all of it', done: false });
  });
});

test('an empty body is done at once', () => {
  expect(new BodyDecoder({ kind: 'length', length: 0 }).done).toBe(true);
  expect(new BodyDecoder({ kind: 'none' }).done).toBe(true);
});

test.each([
  ['no size', '\r\nhello'],
  ['a sign', '+5\r\nhello\r\n0\r\n\r\n'],
  ['0x', '0x5\r\nhello\r\n0\r\n\r\n'],
  ['a space before the line end', '5 \r\nhello\r\n0\r\n\r\n'],
  ['a leading space', ' 5\r\nhello\r\n0\r\n\r\n'],
  ['a bare line feed after the size', '5\nhello\r\n0\r\n\r\n'],
  ['a bare return after the size', '5\rhello\r\n0\r\n\r\n'],
  ['a line feed in an extension', '5;a\nb\r\nhello\r\n0\r\n\r\n'],
  ['no line end after the data', '5\r\nhelloX\r\n0\r\n\r\n'],
  ['a bare line feed after the data', '5\r\nhello\n0\r\n\r\n'],
  ['too many digits', '0000000000005\r\nhello\r\n0\r\n\r\n'],
  ['a trailer without a colon', '0\r\nabc\r\n\r\n'],
  ['a folded trailer', '0\r\nA: b\r\n c\r\n\r\n'],
  ['a bare line feed in the trailers', '0\r\nA: b\n\r\n'],
  ['a length in the trailers', '0\r\nA: b\r\nContent-Length: 3\r\n\r\n'],
  ['endless extensions', `5;${'a'.repeat(20_000)}\r\nhello\r\n0\r\n\r\n`],
  ['endless trailers', `0\r\nA: ${'b'.repeat(10_000)}\r\n\r\n`],
])('%s is refused', (_name, text) => {
  expect(() => read(CHUNKED, text)).toThrow(WireError);
  expect(() => read(CHUNKED, text, 1)).toThrow(WireError);
});

describe('chunks of one read', () => {
  function piecesOf(text: string): string[] {
    const pieces: string[] = [];
    const bytes = Buffer.from(text, 'latin1');
    const used = new BodyDecoder(CHUNKED).feed(bytes, 3, {
      data: (chunk) => pieces.push(chunk.toString('latin1')),
      end: () => pieces.push('END'),
    });
    expect(bytes.toString('latin1', used)).toBe('REST');
    return pieces;
  }
  const chunk = (body: string) => `${body.length.toString(16)}\r\n${body}\r\n`;

  test('come in one piece where they are small', () => {
    expect(piecesOf(`...${chunk('a').repeat(5_000)}0\r\n\r\nREST`)).toEqual(['a'.repeat(5_000), 'END']);
  });

  test('stay where they are when they are large', () => {
    const large = 'x'.repeat(5_000);
    const text = `...${chunk('a')}${chunk(large)}${chunk('b')}${chunk(large)}${chunk('c')}0\r\n\r\nREST`;
    expect(piecesOf(text)).toEqual(['a', `${large}b`, `${large}c`, 'END']);
  });
});
