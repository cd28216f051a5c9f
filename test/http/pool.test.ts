/** Which kept-alive connection a request goes out on. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type UpstreamHandler, UpstreamPool } from '../../host/http/client/pool.ts';
import { answerField } from '../../host/http/message/fields.ts';

test('a connection that was idle for too long is not used, also where the timer is late', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tp-pool-'));
  const socketPath = path.join(folder, 'http.sock');
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'));
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const pool = new UpstreamPool({ socketPath, classify: answerField, idleMs: 50 });
  const ask = () =>
    new Promise<void>((resolve, reject) => {
      const nothing = () => {};
      const handler = { end: () => resolve(), failed: reject } as unknown as UpstreamHandler;
      for (const name of ['informational', 'head', 'data', 'flush', 'drained', 'upgraded'] as const)
        handler[name] = nothing;
      pool.start('POST', 'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n', { kind: 'none' }, handler);
    });
  try {
    await ask();
    await ask();
    expect(connections).toBe(1);
    // No timer runs meanwhile.
    for (const until = performance.now() + 60; performance.now() < until; );
    await ask();
    expect(connections).toBe(2);
  } finally {
    pool.close();
    server.close();
    rmSync(folder, { recursive: true });
  }
});
