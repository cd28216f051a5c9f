/** A publisher of speech models: serves files by ranges, and breaks off, changes its files or lies when it is told to. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { until } from './until.ts';

export interface ModelServer {
  url: string;
  files: Map<string, Buffer>;
  /** The next answers end after so many bytes, one after the other, once `taken` is true of all that was sent by then. */
  breakAfter: number[];
  taken(bytes: number): boolean;
  /** Ranges that were asked for; '' without one. */
  ranges: string[];
  /** Answers instead of the file. */
  instead: ((request: IncomingMessage, response: ServerResponse) => void) | undefined;
  stop(): Promise<void>;
}

export async function startModelServer(): Promise<ModelServer> {
  const http = createServer((request, response) => {
    served.ranges.push(request.headers.range ?? '');
    if (served.instead) return served.instead(request, response);
    const file = served.files.get((request.url ?? '').slice(1));
    if (file === undefined) return void response.writeHead(404).end();
    const etag = `"${createHash('sha256').update(file).digest('hex')}"`;
    const wanted = /^bytes=(\d+)-$/.exec(request.headers.range ?? '');
    const goesOn = wanted !== null && request.headers['if-range'] === etag;
    const from = goesOn ? Number(wanted[1]) : 0;
    if (from >= file.length) return void response.writeHead(416, { 'content-range': `bytes */${file.length}` }).end();
    const range = goesOn ? { 'content-range': `bytes ${from}-${file.length - 1}/${file.length}` } : {};
    response.writeHead(goesOn ? 206 : 200, { etag, 'content-length': file.length - from, ...range });
    const bytes = served.breakAfter.shift();
    if (bytes === undefined) return void response.end(file.subarray(from));
    response.write(file.subarray(from, from + bytes));
    void until(() => bytes === 0 || served.taken(from + bytes)).then(() => response.destroy());
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const served: ModelServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    files: new Map(),
    breakAfter: [],
    taken: () => true,
    ranges: [],
    instead: undefined,
    async stop() {
      http.closeAllConnections();
      http.close();
      await once(http, 'close');
    },
  };
  return served;
}
