import { Message } from 'capnp-ts';
import { describe, expect, test } from 'vitest';
import { abortMessage, ForeignMessage, RpcMessages } from '../../../host/bindings/services/rpc-messages.ts';

const DISPATCHER = 0xf20697475ec1752dn;

/** A message of rpc.capnp with one struct in it, and as many more bytes as are asked for. */
function message(kind: number, question: number, method = 0, service = 0n, more = 0): Buffer {
  const words = 6 + more / 8;
  const bytes = Buffer.alloc(8 + 8 * words);
  bytes.writeUInt32LE(words, 4);
  const segment = bytes.subarray(8);
  segment.writeUInt16LE(1, 4);
  segment.writeUInt16LE(1, 6);
  segment.writeUInt16LE(kind, 8);
  segment.writeUInt16LE(3, 20);
  segment.writeUInt32LE(question, 24);
  segment.writeUInt16LE(method, 28);
  segment.writeBigUInt64LE(service, 32);
  return bytes;
}
const session = (question: number) => message(2, question, 9, DISPATCHER);

describe('messages of a connection', () => {
  test.each([1, 3, 8, 1000])('calls are counted until they are answered, in chunks of %d bytes', (size) => {
    let sessions = 0;
    const [calls, callbacks] = RpcMessages.pair(() => sessions++);
    const read = (messages: RpcMessages, ...all: Buffer[]) => {
      const bytes = Buffer.concat(all);
      for (let at = 0; at < bytes.length; at += size) messages.read(bytes.subarray(at, at + size));
    };
    read(calls, message(8, 0), session(1), message(2, 2, 0, 5n, 4_096), session(3));
    expect([sessions, calls.open]).toEqual([2, 4]);
    read(callbacks, message(3, 0), message(3, 1), message(2, 7));
    expect([calls.open, callbacks.open]).toEqual([2, 1]);
    // One that is not waited for any more, and the end of one that was answered.
    read(calls, message(4, 2), message(4, 1), message(3, 7), message(6, 1));
    expect([calls.open, callbacks.open]).toEqual([1, 0]);
  });

  test.each([0, 1, 2, 3, 4, 5, 6, 7, 8, 10])('event %d of a dispatcher is no call of a method', (method) => {
    const [calls] = RpcMessages.pair(() => undefined);
    expect(() => calls.read(message(2, 1, method, DISPATCHER))).toThrow(ForeignMessage);
  });

  test.each([
    ['too many segments', Buffer.from([0xff, 0xff, 0, 0, 0, 0, 0, 0])],
    ['an empty segment', Buffer.alloc(8)],
    ['a pointer out of the segment', Buffer.from('0000000001000000fcffff7f01000100', 'hex')],
    ['a far pointer', Buffer.from('00000000010000000200000001000000', 'hex')],
    [
      'a call behind a far pointer',
      Buffer.from('00000000030000000000000001000100020000000000000002000000010000000000000000000000', 'hex'),
    ],
  ])('%s is refused', (_what, bytes) => {
    const [calls] = RpcMessages.pair(() => undefined);
    expect(() => calls.read(bytes)).toThrow(ForeignMessage);
  });
});

test('the message that ends a connection says why', () => {
  const bytes = abortMessage('shop has expired.');
  expect(bytes.length % 8).toBe(0);
  // A reader of the format finds the text where the pointers lead.
  const read = new Message(new Uint8Array(bytes).buffer, false);
  expect(Buffer.from(read.getSegment(0).buffer).toString('latin1')).toContain('jsg.Error: shop has expired.\0');
  const [calls] = RpcMessages.pair(() => undefined);
  calls.read(bytes);
  expect(calls.open).toBe(0);
});
