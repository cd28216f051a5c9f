/**
 * The public port, bound once by the supervisor and shared with every edge process. The supervisor itself never
 * accepts on it; while an edge is being restarted, connections wait in the kernel's queue instead of being refused.
 */
import { chmodSync, rmSync } from 'node:fs';
import net from 'node:net';
import { Problem } from '../shared/problem.ts';

/** A bound socket as child processes take it. */
export interface ListeningSocket {
  /** Pass it with a call: Node duplicates it for the child. */
  handle: net.Server;
  port: number;
  close(): void;
}

interface BoundHandle {
  getsockname(out: { port?: number }): number;
  close(): void;
}

// The function with which node:cluster makes its shared handles: binds, but does not listen or accept. The documented
// ways either make this process accept too (net.Server) or let two hosts share a port by accident (reusePort).
const bind = (
  net as unknown as { _createServerHandle(host: string, port: number, type: 4 | 6 | -1): BoundHandle | number }
)._createServerHandle;

/**
 * @param flag with which another port is chosen
 * @throws Problem conflict when the port is taken, or may not be used by this user
 */
export function bindSocket(host: string, port: number, flag = '--port'): ListeningSocket {
  const handle = bind(host, port, net.isIPv6(host) ? 6 : 4);
  const name: { port?: number } = {};
  // libuv keeps "address in use" of a bind to itself until the next call on the socket.
  const failure = typeof handle === 'number' ? handle : handle.getsockname(name);
  if (typeof handle === 'number' || failure !== 0) {
    if (typeof handle !== 'number') handle.close();
    throw new Problem(
      'conflict',
      `Cannot listen on ${host} port ${port} (${errorName(failure)}): another program uses it, or it needs more rights. ` +
        `Choose another with ${flag}; 0 picks a free one.`,
    );
  }
  return { handle: handle as unknown as net.Server, port: name.port ?? port, close: () => handle.close() };
}

/** A unix socket to which everybody may connect who has a path to it; that of a host that was killed is replaced. @throws Error when it cannot be made */
export function bindUnixSocket(file: string): Omit<ListeningSocket, 'port'> & { path: string } {
  rmSync(file, { force: true });
  const handle = bind(file, -1, -1);
  if (typeof handle === 'number') throw new Error(`Cannot listen on ${file}: ${errorName(handle)}.`);
  chmodSync(file, 0o666);
  return { handle: handle as unknown as net.Server, path: file, close: () => handle.close() };
}

function errorName(code: number): string {
  return code === -98 ? 'address in use' : code === -13 ? 'permission denied' : `error ${code}`;
}
