/** What a zone, or whoever answers in its place, can make of the look at a TXT record: a no in time, and nothing else. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { OwnershipRecords } from '../../host/domains/ownership-record.ts';

const NAME = 'api.example.com';
const TOKEN = 'tp-token';

/** A UDP server that answers each query with the bytes that `lie` makes of it, and TCP where `overTcp` does. */
async function check(
  lie: (query: Buffer) => Buffer[],
  overTcp: (query: Buffer) => Buffer = () => Buffer.alloc(0),
  timeout = 300,
) {
  const tcp = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', (data) => socket.end(overTcp(data.subarray(2))));
  });
  await once(tcp.listen(0, '127.0.0.1'), 'listening');
  const { port } = tcp.address() as { port: number };
  const udp = createSocket('udp4');
  udp.on('message', (query, from) => {
    for (const answer of lie(query)) udp.send(answer, from.port, from.address);
  });
  udp.bind(port, '127.0.0.1');
  await once(udp, 'listening');
  try {
    return await new OwnershipRecords(`127.0.0.1:${port}`, { timeout, tries: 1 }).check(NAME, TOKEN);
  } finally {
    udp.close();
    tcp.close();
  }
}

function head(query: Buffer, answers: number, flags = 0x8180): Buffer {
  const bytes = Buffer.alloc(12);
  query.copy(bytes, 0, 0, 2);
  bytes.writeUInt16BE(flags, 2);
  bytes.writeUInt16BE(1, 4);
  bytes.writeUInt16BE(answers, 6);
  return bytes;
}
const question = (query: Buffer) => {
  let at = 12;
  while ((query[at] ?? 0) > 0) at += 1 + (query[at] ?? 0);
  return query.subarray(12, at + 5);
};
function record(type: number, data: Buffer, name = 0xc00c): Buffer {
  const bytes = Buffer.alloc(12);
  bytes.writeUInt16BE(name, 0);
  bytes.writeUInt16BE(type, 2);
  bytes.writeUInt16BE(1, 4);
  bytes.writeUInt16BE(data.length, 10);
  return Buffer.concat([bytes, data]);
}
const txt = (text: string) => record(16, Buffer.concat([Buffer.from([text.length]), Buffer.from(text)]));
const whole = (query: Buffer, ...records: Buffer[]) =>
  Buffer.concat([head(query, records.length), question(query), ...records]);
const otherId = (answer: Buffer) => Buffer.concat([Buffer.from([(answer[0] ?? 0) ^ 0xff]), answer.subarray(1)]);
const framed = (answer: Buffer) => {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(answer.length);
  return Buffer.concat([length, answer]);
};

it('the record is found among many, and where the answer only fits TCP', async () => {
  expect(await check((query) => [whole(query, txt('x'), txt(TOKEN))], undefined, 10_000)).toEqual({ found: true });
  const many = (query: Buffer) => whole(query, ...Array.from({ length: 3_000 }, (_, at) => txt(`x${at}`)), txt(TOKEN));
  const cut = (query: Buffer) => [Buffer.concat([head(query, 0, 0x8380), question(query)])];
  expect(await check(cut, (query) => framed(many(query)), 10_000)).toEqual({ found: true });
});

const pointer = (at: number) => Buffer.from([0xc0 | (at >> 8), at & 0xff]);
it.each<[string, (query: Buffer) => Buffer[], ((query: Buffer) => Buffer)?]>([
  ['nothing', () => []],
  ['no bytes', () => [Buffer.alloc(0)]],
  ['the id of another query', (query) => [otherId(whole(query, txt(TOKEN)))]],
  [
    'a name that points at itself',
    (query) => [whole(query, record(16, Buffer.from('\x08tp-token'), 0xc000 | (12 + question(query).length)))],
  ],
  ['a name that points past the end', (query) => [whole(query, record(16, Buffer.from('\x08tp-token'), 0xffff))]],
  ['a text longer than its record', (query) => [whole(query, record(16, Buffer.from('\xfftp-token', 'latin1')))]],
  ['a record longer than the answer', (query) => [whole(query, txt(TOKEN)).subarray(0, -4)]],
  ['more records than there are', (query) => [Buffer.concat([head(query, 65_535), question(query)])]],
  [
    'another question',
    (query) => [Buffer.concat([head(query, 1), Buffer.from('\x04evil\x00\x00\x10\x00\x01', 'latin1'), txt(TOKEN)])],
  ],
  ['an alias of itself', (query) => [whole(query, record(5, pointer(12)))]],
  ['an address', (query) => [whole(query, record(1, Buffer.from([127, 0, 0, 1])))]],
  ['SERVFAIL', (query) => [Buffer.concat([head(query, 0, 0x8182), question(query)])]],
  ['REFUSED', (query) => [Buffer.concat([head(query, 0, 0x8185), question(query)])]],
  ['NXDOMAIN', (query) => [Buffer.concat([head(query, 0, 0x8183), question(query)])]],
  ['a cut answer, and nothing over TCP', (query) => [Buffer.concat([head(query, 0, 0x8380), question(query)])]],
  [
    'a cut answer, and 64 KB of zeros over TCP',
    (query) => [Buffer.concat([head(query, 0, 0x8380), question(query)])],
    () => framed(Buffer.alloc(65_535)),
  ],
  ['the token in another letter case', (query) => [whole(query, txt(TOKEN.toUpperCase()))]],
  ['the token within more text', (query) => [whole(query, txt(`${TOKEN} and more`))]],
])('%s is no', async (_, lie, overTcp) => {
  expect(await check(lie, overTcp)).toMatchObject({ found: false, reason: expect.any(String) });
});

it('only what the DNS says counts against a domain, not that it does not answer', async () => {
  const code = (flags: number) => (query: Buffer) => [Buffer.concat([head(query, 0, flags), question(query)])];
  expect(await check(code(0x8183))).not.toHaveProperty('unanswered');
  expect(await check((query) => [whole(query, txt('other'))])).not.toHaveProperty('unanswered');
  for (const lie of [code(0x8182), code(0x8185), () => []])
    expect(await check(lie)).toMatchObject({ unanswered: true });
});
