import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { closeNow, endAnswer, listenAt, readBounded } from '../../host/bindings/tenant-socket.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'socket-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it('replaces what is at its path, and answers a body that is too large before the rest of it came', async () => {
  const socketPath = path.join(folder, 'one.sock');
  writeFileSync(socketPath, 'of an earlier process');
  const server = createServer(async (asked, answer) => {
    const body = await readBounded(asked, 100);
    answer.statusCode = body ? 200 : 413;
    endAnswer(asked, answer, body ? String(body.length) : 'too large');
  });
  await listenAt(server, socketPath);
  /** @param more whether the body has no end */
  const ask = (bytes: number, more = false) =>
    new Promise<string>((resolve, reject) => {
      const sent = request({ socketPath, method: 'POST', agent: false }, async (got) => {
        let text = `${got.statusCode} `;
        for await (const part of got) text += part;
        // Nobody reads what else would come.
        if (more) await once(sent.socket ?? sent, 'close');
        resolve(text);
      });
      sent.once('error', reject);
      sent.write(Buffer.alloc(bytes));
      if (!more) sent.end();
    });
  expect(await ask(100)).toBe('200 100');
  expect(await ask(101)).toBe('413 too large');
  // More than the kernel takes ahead is still written when it is answered: workerd gives up where a write fails.
  const socket = connect(socketPath);
  socket.write('POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2000000\r\n\r\n');
  const written = new Promise<unknown>((resolve) => socket.write(Buffer.alloc(2_000_000), resolve));
  expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1.1 413 [\s\S]*too large$/);
  expect(await written).toBeFalsy();
  socket.destroy();
  expect(await ask(101, true)).toBe('413 too large');
  closeNow(server);
  await expect(ask(1)).rejects.toThrow();
});
