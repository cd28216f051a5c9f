import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { bindSocket, bindUnixSocket } from '../../host/supervisor/listening-socket.ts';

it('picks a free port, and refuses one that is taken', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const taken = (server.address() as { port: number }).port;
  expect(() => bindSocket('127.0.0.1', taken)).toThrow(/address in use.*--port/s);
  expect(() => bindSocket('127.0.0.1', taken, '--tls-port')).toThrow(/address in use.*--tls-port/s);
  await new Promise((resolve) => server.close(resolve));
  const free = bindSocket('127.0.0.1', 0);
  expect(free.port).toBeGreaterThan(0);
  free.close();
});

it('names an address that is not of this machine', () => {
  expect(() => bindSocket('192.0.2.1', 0)).toThrow(/Cannot listen on 192\.0\.2\.1/);
});

it('replaces the unix socket that a killed host has left', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tp-'));
  const file = path.join(folder, 'edge.sock');
  // A second one while the first is there: its file is what a kill leaves.
  const left = bindUnixSocket(file);
  bindUnixSocket(file).close();
  left.close();
  rmSync(folder, { recursive: true });
});
