/** A DNS server that answers what a test says, to see what a hostile zone can do. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';

const TYPES: Record<number, 'A' | 'AAAA' | 'TXT'> = { 1: 'A', 16: 'TXT', 28: 'AAAA' };

export interface DnsServer {
  /** `host:port`. */
  address: string;
  /** Names that were asked for, in order, with the record type. */
  asked: string[];
  stop(): void;
}

/**
 * @param answer addresses for a name; called for every query. IPv4 for `A`, IPv6 (16 bytes as hex) for `AAAA`
 * @param texts TXT records of a name, each at most 255 bytes
 */
export async function startDns(
  answer: (name: string, type: 'A' | 'AAAA') => string[],
  texts: (name: string) => string[] = () => [],
): Promise<DnsServer> {
  const socket = createSocket('udp4');
  const asked: string[] = [];
  socket.on('message', (query, from) => {
    const labels: string[] = [];
    let at = 12;
    for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
      labels.push(query.subarray(at + 1, at + 1 + length).toString());
      at += 1 + length;
    }
    const code = query.readUInt16BE(at + 1);
    const question = query.subarray(12, at + 5);
    const name = labels.join('.');
    const type = TYPES[code];
    asked.push(`${type ?? code} ${name}`);
    const values =
      type === 'TXT'
        ? texts(name.toLowerCase()).map((text) => Buffer.from(`${String.fromCharCode(text.length)}${text}`, 'latin1'))
        : type === undefined
          ? []
          : answer(name, type).map((address) =>
              type === 'A'
                ? Buffer.from(address.split('.').map(Number))
                : Buffer.from(address.replaceAll(':', ''), 'hex'),
            );
    const records = values.map((bytes) => {
      const head = Buffer.alloc(12);
      head.writeUInt16BE(0xc00c, 0);
      head.writeUInt16BE(code, 2);
      head.writeUInt16BE(1, 4);
      head.writeUInt16BE(bytes.length, 10);
      return Buffer.concat([head, bytes]);
    });
    const head = Buffer.alloc(12);
    query.copy(head, 0, 0, 2);
    head.writeUInt16BE(0x8180, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(records.length, 6);
    socket.send(Buffer.concat([head, question, ...records]), from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return { address: `127.0.0.1:${socket.address().port}`, asked, stop: () => socket.close() };
}
