/** Bytes straight to a port, for what no HTTP client would send. */
import { connect, type Socket } from 'node:net';
import { until } from '../support/until.ts';

export interface RawConnection {
  socket: Socket;
  /** All that came so far, in latin1. */
  received: string;
  closed: boolean;
  send(text: string | Buffer): void;
  /** Waits for text to come. */
  seen(text: string): Promise<string>;
  /** Waits for the other side to end the connection. */
  ended(): Promise<string>;
}

export async function rawConnection(port: number): Promise<RawConnection> {
  const socket = connect(port, '127.0.0.1');
  const raw: RawConnection = {
    socket,
    received: '',
    closed: false,
    send: (text) => {
      socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text);
    },
    seen: async (text) => {
      await until(() => raw.received.includes(text) || (raw.closed && `closed after ${raw.received}`));
      if (!raw.received.includes(text)) throw new Error(`closed after: ${raw.received}`);
      return raw.received;
    },
    ended: async () => {
      await until(() => raw.closed);
      return raw.received;
    },
  };
  socket.on('data', (chunk) => {
    raw.received += chunk.toString('latin1');
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    raw.closed = true;
  });
  socket.on('end', () => {
    raw.closed = true;
  });
  await new Promise<void>((resolve) => socket.once('connect', () => resolve()));
  return raw;
}

/** Sends bytes and gives back everything until the other side ends, or until `text` is seen. */
export async function exchange(port: number, bytes: string, text?: string): Promise<string> {
  const raw = await rawConnection(port);
  raw.send(bytes);
  const received = text === undefined ? await raw.ended() : await raw.seen(text);
  raw.socket.destroy();
  return received;
}
