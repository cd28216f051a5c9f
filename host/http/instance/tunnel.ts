/** Two sockets joined after a WebSocket handshake: bytes both ways with back-pressure, until either side ends. */
import type { Duplex } from 'node:stream';

export interface TunnelEvents {
  /** Bytes from the caller, or to it. */
  in(bytes: number): void;
  out(bytes: number): void;
  /** Called once, when both sides are closed. */
  closed(): void;
}

/**
 * @param caller with `callerBytes` that it sent already
 * @param upstream with `upstreamBytes` that came with its answer's head
 * @returns ends both sides
 */
export function joinSockets(
  caller: Duplex,
  callerBytes: Buffer,
  upstream: Duplex,
  upstreamBytes: Buffer,
  events: TunnelEvents,
): () => void {
  let open = 2;
  const closed = () => {
    open -= 1;
    if (open === 0) events.closed();
  };
  oneWay(caller, upstream, callerBytes, (bytes) => events.in(bytes));
  oneWay(upstream, caller, upstreamBytes, (bytes) => events.out(bytes));
  for (const [side, other] of [
    [caller, upstream],
    [upstream, caller],
  ] as const) {
    side.on('error', () => side.destroy());
    side.on('end', () => other.end());
    side.on('close', () => {
      // What is queued for the other side, such as a close frame, is still sent.
      if (!other.destroyed) other.end(() => other.destroy());
      closed();
    });
    if (side.destroyed) {
      closed();
      other.destroy();
    }
  }
  return () => {
    caller.destroy();
    upstream.destroy();
  };
}

function oneWay(from: Duplex, to: Duplex, first: Buffer, count: (bytes: number) => void): void {
  const forward = (bytes: Buffer) => {
    count(bytes.length);
    if (!to.writableEnded && !to.write(bytes)) from.pause();
  };
  if (first.length > 0) forward(first);
  from.on('data', forward);
  to.on('drain', () => from.resume());
  from.resume();
}
