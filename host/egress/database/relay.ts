/** Carries bytes between a client and a database until one of them is done, counted, and ended by silence. */
import type { Duplex } from 'node:stream';
import type { Allowance } from '../allowance.ts';

export interface RelayOptions {
  allowance: Allowance;
  signal: AbortSignal;
  /** Looks at what the client sends; answers how much of it the database gets: less than all, and the client is done. */
  fromClient?(bytes: Buffer): number;
  fromServer?(bytes: Buffer): void;
}

/** Settles with `client` when the client is done and the connection to the database stands. */
export function relay(
  client: Duplex,
  server: Duplex,
  { allowance, signal, fromClient, fromServer }: RelayOptions,
): Promise<'client' | 'server'> {
  return new Promise((resolve) => {
    const settle = (who: 'client' | 'server') => {
      clearTimeout(idle);
      signal.removeEventListener('abort', stop);
      client.off('data', up).off('end', left).off('close', left).off('drain', more);
      server.off('data', down).off('end', stop).off('close', stop).off('drain', again);
      client.pause();
      server.pause();
      resolve(who);
    };
    const left = () => settle('client');
    const stop = () => settle('server');
    const more = () => server.resume();
    const again = () => client.resume();
    function up(chunk: Buffer): void {
      idle.refresh();
      const passed = fromClient ? fromClient(chunk) : chunk.length;
      if (!allowance.count('out', passed)) stop();
      else if (passed > 0 && !server.write(passed === chunk.length ? chunk : chunk.subarray(0, passed))) client.pause();
      if (passed < chunk.length) left();
    }
    function down(chunk: Buffer): void {
      idle.refresh();
      fromServer?.(chunk);
      if (!allowance.count('in', chunk.length)) stop();
      else if (!client.write(chunk)) server.pause();
    }
    const idle = setTimeout(stop, allowance.limits.timeoutMs);
    signal.addEventListener('abort', stop, { once: true });
    client.on('data', up).once('end', left).once('close', left).on('drain', more);
    server.on('data', down).once('end', stop).once('close', stop).on('drain', again);
    if (signal.aborted || server.destroyed) stop();
    else if (client.destroyed) left();
    else {
      client.resume();
      server.resume();
    }
  });
}
