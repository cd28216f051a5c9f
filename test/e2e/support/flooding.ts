/** Floods of requests that nobody pays for, and the memory of the processes that they reach. */
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import type { TestHost } from './host.ts';

export const MB = 1_048_576;

/** Resident memory of the processes that callers reach: the supervisor and the edges, bytes by process. */
export function resident(host: Pick<TestHost, 'pid'>): Map<number, number> {
  const children = readFileSync(`/proc/${host.pid}/task/${host.pid}/children`, 'utf8').trim().split(' ').map(Number);
  const edges = children.filter((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('edge/main.ts'));
  if (edges.length === 0) throw new Error('no process of the edge was found');
  return new Map([host.pid, ...edges].map((pid) => [pid, residentOf(pid)]));
}

export function residentOf(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}

export interface Flood {
  head: string;
  piece: Buffer;
  /** What each connection sends of its body, bytes; it never ends. */
  bytes: number;
}

export class Flooding {
  readonly statuses: string[] = [];
  readonly #sockets: Socket[];
  #open: number;

  constructor({ port }: Pick<TestHost, 'port'>, { head, piece, bytes }: Flood, count: number) {
    this.#open = count;
    this.#sockets = Array.from({ length: count }, (_, index) => {
      const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.0.${2 + (index % 8)}` });
      let sent = 0;
      const push = () => {
        while (sent < bytes && !socket.destroyed) {
          sent += piece.length;
          if (!socket.write(piece)) return void socket.once('drain', push);
        }
      };
      socket.on('error', () => {});
      socket.once('data', (first: Buffer) => this.statuses.push(first.toString('latin1', 9, 12)));
      socket.once('close', () => {
        this.#open -= 1;
      });
      socket.write(`${head}\r\n\r\n`);
      push();
      return socket;
    });
  }

  /** Whether every connection is closed. */
  get isOver(): boolean {
    return this.#open === 0;
  }

  stop(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

export const LARGE = Buffer.alloc(65_536, 'a');
export const large = (path: string, fields = ''): Flood => ({
  head: `POST ${path} HTTP/1.1\r\nhost: localhost\r\n${fields}content-length: ${21 * MB}`,
  piece: LARGE,
  bytes: 20 * MB,
});

/** A payment for what is asked, in all but its signature. */
export async function forgedPayment(host: Pick<TestHost, 'url'>): Promise<string> {
  const asked = await fetch(`${host.url}/_admin/deploy`, { method: 'POST', headers: { host: 'localhost' } });
  await asked.arrayBuffer();
  const required = JSON.parse(Buffer.from(asked.headers.get('payment-required') ?? '', 'base64').toString());
  const accepted = required.accepts.find(({ scheme }: { scheme: string }) => scheme === 'exact');
  const address = `0x${'1'.repeat(40)}`;
  const authorization = {
    from: address,
    to: accepted.payTo,
    value: accepted.amount,
    validAfter: '0',
    validBefore: '9999999999',
    nonce: `0x${'2'.repeat(64)}`,
  };
  const payment = { x402Version: 2, accepted, payload: { signature: '0x00', authorization } };
  return Buffer.from(JSON.stringify(payment)).toString('base64');
}
