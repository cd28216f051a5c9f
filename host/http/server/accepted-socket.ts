/**
 * Gives an accepted socket memory to read into. Node offers that (`onread`) for sockets that connect, not for those
 * that a server accepts: there every read makes a buffer of 64 kB. A second socket over the same handle has it.
 */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';

interface WithHandle {
  _handle: object | null;
}

/**
 * @param accepted by a server with `pauseOnConnect`, so that nothing was read; not to be used any more
 * @returns the socket to use in its place
 */
export function withReadBuffer(accepted: Socket, onread: OnReadOpts): Socket {
  const inner = accepted as unknown as WithHandle;
  const handle = inner._handle;
  if (!handle) return accepted;
  inner._handle = null;
  // Its server counts it as gone.
  accepted.destroy();
  return new Socket({ handle, onread } as SocketConstructorOpts);
}
