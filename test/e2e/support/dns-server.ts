/** A DNS server that answers what a test says, to see what a hostile zone can do. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';

const TYPES: Record<number, 'A' | 'AAAA' | 'TXT'> = { 1: 'A', 16: 'TXT', 28: 'AAAA' };
const CNAME = 5;

export interface DnsServer {
  /** `host:port`. */
  address: string;
  /** Names that were asked for, in order, with the record type. */
  asked: string[];
  stop(): void;
}

/**
 * @param answer what a name has; called for every query. IPv4 for `A`, IPv6 (16 bytes as hex) for `AAAA`, and for an
 * alias `CNAME <name>`
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
    const values = type === 'TXT' ? texts(name.toLowerCase()) : type === undefined ? [] : answer(name, type);
    const records = values.map((value) => {
      const alias = type !== 'TXT' && value.startsWith('CNAME ') ? value.slice('CNAME '.length) : undefined;
      const bytes = alias === undefined ? encoded(value, type) : encodedName(alias);
      const head = Buffer.alloc(12);
      head.writeUInt16BE(0xc00c, 0);
      head.writeUInt16BE(alias === undefined ? code : CNAME, 2);
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

function encoded(value: string, type: string | undefined): Buffer {
  if (type === 'TXT') return Buffer.from(`${String.fromCharCode(value.length)}${value}`, 'latin1');
  return type === 'A' ? Buffer.from(value.split('.').map(Number)) : Buffer.from(value.replaceAll(':', ''), 'hex');
}

function encodedName(name: string): Buffer {
  const labels = name.split('.').map((label) => `${String.fromCharCode(label.length)}${label}`);
  return Buffer.from(`${labels.join('')}\0`, 'latin1');
}
