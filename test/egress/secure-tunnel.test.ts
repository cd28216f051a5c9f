import { describe, expect, test } from 'vitest';
import { Frames } from '../../host/egress/secure-tunnel.ts';
import { isFramed, parseFramedTarget } from '../../host/egress/target.ts';

function frame(type: number, text: string, length = text.length): Buffer {
  const header = Buffer.alloc(5);
  header[0] = type;
  header.writeUInt32BE(length, 1);
  return Buffer.concat([header, Buffer.from(text)]);
}

describe('frames of a handler', () => {
  const sent = Buffer.concat([frame(0, 'hello'), frame(0, ''), frame(0, 'x'.repeat(300)), frame(1, 'db.test')]);

  test.each([1, 2, 3, 7, 64, 10_000])('are found in pieces of %i bytes', (size) => {
    const frames = new Frames();
    const data: Buffer[] = [];
    const all = Buffer.concat([sent, Buffer.from('rest')]);
    let order: ReturnType<Frames['take']>;
    let at = 0;
    for (; at < all.length && !order; at += size)
      order = frames.take(all.subarray(at, at + size), (bytes) => data.push(bytes));
    expect(Buffer.concat(data).toString()).toBe(`hello${'x'.repeat(300)}`);
    expect(order).toMatchObject({ name: 'db.test' });
    const rest = (order as { rest: Buffer }).rest;
    expect(Buffer.concat([rest, all.subarray(at)]).toString()).toBe('rest');
  });

  test('start TLS for the host where they name no other', () => {
    expect(new Frames().take(frame(1, ''), () => undefined)).toEqual({ name: undefined, rest: Buffer.alloc(0) });
  });

  test.each([
    ['a kind that there is not', frame(2, 'a')],
    ['a name that is too long', frame(1, '', 254)],
  ])('with %s are refused', (_what, bytes) => {
    expect(new Frames().take(bytes, () => undefined)).toBe('broken');
  });

  test('may be as long as they like: nothing of them is kept', () => {
    const frames = new Frames();
    let bytes = 0;
    frames.take(frame(0, '', 0xffff_ffff), () => undefined);
    for (let turn = 0; turn < 10; turn++) frames.take(Buffer.alloc(65_536), (part) => (bytes += part.length));
    expect(bytes).toBe(655_360);
  });
});

describe('an address with TLS', () => {
  test.each([
    ['db.example.com.tls.turnpike.internal:5432', 'db.example.com:5432'],
    ['DB.Example.com.TLS.turnpike.internal:5432', 'db.example.com:5432'],
    ['10.0.0.1.tls.turnpike.internal:1', '10.0.0.1:1'],
    ['2130706433.tls.turnpike.internal:1', '127.0.0.1:1'],
    ['2001-db8--1.v6.tls.turnpike.internal:1', '[2001:db8::1]:1'],
    ['--ffff-127.0.0.1.v6.tls.turnpike.internal:1', '[::ffff:7f00:1]:1'],
  ])('%s is %s', (authority, name) => {
    expect(isFramed(authority)).toBe(true);
    expect(parseFramedTarget(authority)).toMatchObject({ name, tls: true, kind: 'tcp' });
  });

  test.each(['.tls.turnpike.internal:1', 'db.test:5432', 'tls.turnpike.internal:1', 'a.tls.turnpike.internal'])(
    '%s is none',
    (authority) => expect(isFramed(authority)).toBe(false),
  );

  test('that is none once it is taken apart is refused', () => {
    expect(() => parseFramedTarget('a/b.tls.turnpike.internal:1')).toThrow('host:port');
    expect(() => parseFramedTarget('zz-zz.v6.tls.turnpike.internal:1')).toThrow('host:port');
    expect(() => parseFramedTarget('a.tls.turnpike.internal:0')).toThrow('host:port');
  });
});
