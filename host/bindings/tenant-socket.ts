/** HTTP on the unix socket of a binding, where code of a tenant calls: listening, bodies, and the end of an answer. */
import { rmSync } from 'node:fs';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';

const LINGER_MS = 1_000;
const LINGER_BYTES = 16 * 1_048_576;

/** A socket of an earlier process is replaced. */
export async function listenAt(server: Server, socket: string): Promise<void> {
  rmSync(socket, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(socket, resolve);
  });
}

/** Cuts off whoever is connected. */
export function closeNow(server: Server | undefined): void {
  server?.close();
  server?.closeAllConnections();
}

/** @returns undefined for more than `most` bytes; the request can be answered all the same */
export async function readBounded(request: IncomingMessage, most: number): Promise<Buffer | undefined> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > most) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/**
 * Ends the answer. What else comes of the request is thrown away for a while, and then the connection is cut: who is
 * still writing when it is cut does not see the answer.
 */
export function endAnswer(request: IncomingMessage, response: ServerResponse, text = ''): void {
  response.end(text, () => {
    if (request.complete) return;
    let bytes = 0;
    const cut = setTimeout(() => request.destroy(), LINGER_MS);
    request.on('data', (part: Buffer) => {
      bytes += part.length;
      if (bytes > LINGER_BYTES) request.destroy();
    });
    request.once('end', () => clearTimeout(cut));
    request.once('close', () => clearTimeout(cut));
  });
}
