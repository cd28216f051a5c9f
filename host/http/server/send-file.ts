/**
 * sendfile(2): the kernel sends pages of a file as they lie in its cache. To write them from memory copies each byte
 * once more, which is half of the work of an answer of 1 MiB.
 */
import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import type { FileBytes } from '../message/blocks.ts';

const LIBC = 'libc.so.6';

type SendFile = (to: number, from: number, offset: BigInt64Array, bytes: number) => number | bigint;

let send: SendFile | undefined;
let looked = false;
const offset = new BigInt64Array(1);

/**
 * Never waits: what the socket has no room for is left.
 * @param socket a plain one, with nothing of its own left to write
 * @returns bytes that were sent; 0 also where that cannot be done, and the bytes have to be written
 */
export function sendFile(socket: Socket, { descriptor, at }: FileBytes, bytes: number): number {
  if (!looked) send = find();
  looked = true;
  const to = (socket as unknown as { _handle: { fd?: number } | null })._handle?.fd;
  if (!send || to === undefined || to < 0 || socket.writableLength > 0) return 0;
  offset[0] = BigInt(at);
  return Math.max(0, Number(send(to, descriptor, offset, bytes)));
}

/** Nothing where the optional package is not installed. */
function find(): SendFile | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    return koffi.load(LIBC).func('long sendfile(int to, int from, int64_t *offset, size_t bytes)');
  } catch {
    return undefined;
  }
}
