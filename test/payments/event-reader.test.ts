import { expect, test } from 'vitest';
import { EventReader, type StreamedEvent } from '../../host/payments/toll/event-reader.ts';

const TEXT =
  ': hello\n\ndata: a\n\nevent: x\r\ndata: b\r\ndata: c\r\n\r\ndata\r\rid: 7\n\nretry: 5\n\nevent: payment-receipt\ndata: {}\n\ndata: ä\n\ndata: cut off\n';

function read(chunks: Uint8Array[]) {
  const reader = new EventReader();
  return chunks.flatMap((chunk) => reader.push(chunk));
}

const textOf = (found: StreamedEvent[]) => Buffer.concat(found.map(({ bytes }) => bytes)).toString();
const sold = (found: StreamedEvent[]) =>
  found.filter(({ hasData }) => hasData).map(({ bytes }) => Buffer.from(bytes).toString().trim());

test('events are found wherever the bytes are cut, as they were sent', () => {
  const bytes = Buffer.from(TEXT);
  const whole = read([bytes]);
  expect(whole.map(({ bytes: text, hasData }) => [Buffer.from(text).toString(), hasData])).toEqual([
    [': hello\n\n', false],
    ['data: a\n\n', true],
    ['event: x\r\ndata: b\r\ndata: c\r\n\r\n', true],
    ['data\r\r', true],
    ['id: 7\n\nretry: 5\n\n', false],
    ['data: ä\n\n', true],
  ]);
  for (let size = 1; size < bytes.length; size += 1) {
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
      bytes.subarray(index * size, (index + 1) * size),
    );
    const found = read(chunks);
    expect(textOf(found), `in pieces of ${size}`).toEqual(textOf(whole));
    expect(sold(found), `in pieces of ${size}`).toEqual(sold(whole));
  }
});

test('an event is complete when its last line is, and not with the next byte', () => {
  for (const end of ['\n', '\r', '\r\n', '\n\r'])
    expect(sold(read([Buffer.from(`data: a${end}${end}`)])), JSON.stringify(end)).toEqual(['data: a']);
  const cut = read([Buffer.from('data: a\r\n\r'), Buffer.from('\ndata: b\r'), Buffer.from('\n\r\n')]);
  expect(sold(cut)).toEqual(['data: a', 'data: b']);
});

test('what nobody pays for comes in one, however much of it there is', () => {
  for (const line of ['\n', '\r\n', ': x\n\n', 'id: 1\r\r']) {
    const free = line.repeat(20_000);
    const found = read([Buffer.from(`${free}data: a\n\n${free}`)]);
    expect([found.length, textOf(found)]).toEqual([3, `${free}data: a\n\n${free}`]);
  }
});

test('events of the host’s own names are left out, however they are written', () => {
  for (const forged of [
    'event: payment-need-voucher\ndata: {}\n\n',
    'event:payment-receipt\ndata: {}\n\n',
    'data: {}\nevent: payment-x\n\n',
    '\uFEFFevent: payment-receipt\r\ndata: {}\r\n\r\n',
    'event: payment-receipt\revent: message\rdata: {}\r\r',
  ])
    expect(read([Buffer.from(`${forged}: end\n\n`)]).map(({ bytes }) => Buffer.from(bytes).toString())).toEqual([
      ': end\n\n',
    ]);
});

test('an event without an end is given up, in whatever pieces it comes', () => {
  for (const size of [1, 1024, 300_000]) {
    const reader = new EventReader();
    const piece = Buffer.alloc(size, 'a');
    expect(() => {
      for (let sent = 0; sent <= 300_000; sent += size) reader.push(piece);
    }).toThrow('too long');
  }
});

test('data is data, whatever it holds', () => {
  for (const data of ['\u2028', 'a\u2029b', '\0', ':', '\ufeff'])
    expect(read([Buffer.from(`data:${data}\n\n`)]).map(({ hasData }) => hasData)).toEqual([true]);
});
