/** Reads what comes before a connection's own protocol, and puts back what belongs to it. */
import type { Socket } from 'node:net';
import { MAX_HELLO_BYTES, offeredProtocols } from './client-hello.ts';
import { readProxyHeader } from './proxy-header.ts';

const PREFACE_MS = 5_000;

export interface Preface {
  /** The caller's address as a PROXY header gave it. */
  address: string | undefined;
  /** Protocols that a ClientHello offers, where it was asked for. */
  protocols: string[];
}

/**
 * @param wanted what to look for; with neither, nothing is read
 * @param done called once, unless the socket is destroyed: too slow, or not what is required
 */
export function readPreface(
  socket: Socket,
  wanted: { proxyHeader: boolean; clientHello: boolean },
  done: (preface: Preface) => void,
): void {
  if (!wanted.proxyHeader && !wanted.clientHello) {
    done({ address: undefined, protocols: [] });
    return;
  }
  let bytes = Buffer.alloc(0);
  let address: string | undefined;
  let { proxyHeader } = wanted;
  const timer = setTimeout(() => socket.destroy(), PREFACE_MS);
  const quiet = () => {};

  function finish(protocols: string[]): void {
    clearTimeout(timer);
    socket.off('readable', read);
    socket.off('end', ended);
    socket.off('close', closed);
    if (bytes.length > 0) socket.unshift(bytes);
    done({ address, protocols });
    socket.off('error', quiet);
  }

  function read(): void {
    for (let chunk = socket.read(); chunk !== null; chunk = socket.read()) bytes = Buffer.concat([bytes, chunk]);
    if (proxyHeader) {
      const header = readProxyHeader(bytes);
      if (header.kind === 'malformed') socket.destroy();
      if (header.kind !== 'read') return;
      address = header.address;
      bytes = bytes.subarray(header.bytes);
      proxyHeader = false;
    }
    if (!wanted.clientHello) {
      finish([]);
      return;
    }
    const protocols = offeredProtocols(bytes);
    if (protocols === 'incomplete' && bytes.length <= MAX_HELLO_BYTES) return;
    finish(typeof protocols === 'string' ? [] : protocols);
  }

  function ended(): void {
    socket.destroy();
  }

  function closed(): void {
    clearTimeout(timer);
  }

  socket.on('error', quiet);
  socket.on('end', ended);
  socket.on('close', closed);
  socket.on('readable', read);
}
