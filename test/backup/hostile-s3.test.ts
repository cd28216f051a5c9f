/** An S3 service that does not end: the list of backups does, and takes little memory. */
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { S3Store } from '../../host/backup/s3-store.ts';

let server: Server;
let asked: number;
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

async function listAt(answer: (response: ServerResponse) => void): Promise<string[]> {
  asked = 0;
  server = createServer((request, response) => {
    asked++;
    if (request.method === 'HEAD') response.writeHead(200, { 'content-length': 5, etag: '"x"' }).end();
    else answer(response);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const connection = { endpoint, region: 'r', accessKey: 'a', secretKey: 's' };
  return await new S3Store(connection, 'bucket', '', '/nowhere', { answerMs: 500, listMs: 1_000 }).list();
}

const page = (entries: string) =>
  `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>${entries}</ListBucketResult>`;

it('an endless body ends', async () => {
  let bytes = 0;
  const chunk = Buffer.alloc(65_536, ' ');
  const flood = (response: ServerResponse): void => {
    while (!response.destroyed && response.write(chunk)) bytes += chunk.length;
    response.once('drain', () => flood(response));
  };
  await expect(listAt(flood)).rejects.toThrow('too much');
  expect(bytes).toBeLessThan(50_000_000);
});

it('a body that never comes ends', async () => {
  await expect(listAt((response) => response.write('<'))).rejects.toThrow('silent');
});

it.each([
  ['empty', ''],
  ['full', '<CommonPrefixes><Prefix>2026-01-01T00-00-00Z/</Prefix></CommonPrefixes>'],
])('endless %s pages end, and are asked for no more', async (_, entries) => {
  await expect(listAt((response) => response.end(page(entries)))).rejects.toThrow('no end');
  // What was under way when the list ended has come back after another answer of the same service.
  const { port } = server.address() as AddressInfo;
  await fetch(`http://127.0.0.1:${port}/`, { method: 'HEAD' });
  const before = asked;
  for (let turn = 0; turn < 20; turn++) await fetch(`http://127.0.0.1:${port}/`, { method: 'HEAD' });
  expect(asked - before).toBeLessThan(25);
});
