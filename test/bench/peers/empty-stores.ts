/**
 * The limit for storage: bare workerd with our binding of a bucket, and stores that answer the same bytes to whatever
 * is asked, without an edge, without keeping anything. What it reaches is workerd's own share.
 */
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort } from '../../e2e/support/ports.ts';
import type { Starter } from '../subject.ts';
import { startProgram, stopProgram } from './programs.ts';
import { WORKERD } from './workerd.ts';

const NAME = 'workerd with empty stores (limit)';
const HEX = '0123456789abcdef0123456789abcdef';
const OBJECT_BYTES = 102_400;
/** As host/bindings/r2/objects.ts answers it. */
const OBJECT = JSON.stringify({
  name: 'hot',
  version: HEX,
  size: OBJECT_BYTES,
  etag: HEX,
  uploaded: 1_795_000_000_000,
  httpFields: {},
  customFields: [],
  range: { offset: 0, length: OBJECT_BYTES },
  checksums: { 0: HEX },
  storageClass: 'Standard',
});
const ROW = JSON.stringify({
  success: true,
  meta: { duration: 0.1, changes: 0, last_row_id: 0, changed_db: false, size_after: 8_192, rows_read: 1 },
  results: { columns: ['v'], rows: [['x'.repeat(1_024)]] },
});

const BUCKET_BINDING = fileURLToPath(new URL('../../../host/bindings/r2/bucket-binding.js', import.meta.url));
const GET_ANSWER = Buffer.concat([
  Buffer.from(`HTTP/1.1 200 OK\r\nx-turnpike-object: ${OBJECT}\r\nContent-Length: ${OBJECT_BYTES}\r\n\r\n`),
  Buffer.alloc(OBJECT_BYTES, 120),
]);
const PUT_ANSWER = `HTTP/1.1 200 OK\r\nCF-R2-Metadata-Size: ${OBJECT.length}\r\nContent-Type: application/json\r\nContent-Length: ${OBJECT.length}\r\n\r\n${OBJECT}`;
const SQL_ANSWER = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${ROW.length}\r\n\r\n${ROW}`;

/** Reads no more of HTTP than workerd makes necessary: one request at a time, its length declared. */
function emptyStore(file: string, answer: (isGet: boolean) => Buffer | string): Promise<Server> {
  const server = createServer((socket: Socket) => {
    let missing = 0;
    socket.on('error', () => socket.destroy());
    socket.on('data', (bytes) => {
      if (missing > 0) missing -= bytes.length;
      else {
        const head = bytes.subarray(0, bytes.indexOf('\r\n\r\n')).toString('latin1');
        const [, length = '0'] = /content-length: (\d+)/i.exec(head) ?? [];
        missing = Number(length) - (bytes.length - head.length - 4);
        if (head.startsWith('GET')) missing = 0;
        socket.once('answer', () => socket.write(answer(head.startsWith('GET'))));
      }
      if (missing <= 0) socket.emit('answer');
    });
  });
  return new Promise((resolve) => server.listen(file, () => resolve(server)));
}

export function emptyStores(code: string): Starter {
  return {
    name: NAME,
    missing: () => undefined,
    async start() {
      const folder = mkdtempSync(path.join(tmpdir(), 'bench-empty-'));
      const port = await freePort();
      const stores = await Promise.all([
        emptyStore(path.join(folder, 'r2.sock'), (isGet) => (isGet ? GET_ANSWER : PUT_ANSWER)),
        emptyStore(path.join(folder, 'd1.sock'), () => SQL_ANSWER),
      ]);
      writeFileSync(path.join(folder, 'worker.js'), code);
      copyFileSync(BUCKET_BINDING, path.join(folder, 'bucket.js'));
      writeFileSync(
        path.join(folder, 'config.capnp'),
        `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = (
      modules = [(name = "worker.js", esModule = embed "worker.js")], compatibilityDate = "2026-11-01",
      bindings = [
        (name = "BUCKET", wrapped = (moduleName = "bucket", innerBindings = [
          (name = "bucket", r2Bucket = "r2"), (name = "store", service = "r2")])),
        (name = "DB", wrapped = (moduleName = "cloudflare-internal:d1-api", innerBindings = [(name = "fetcher", service = "d1")]))])),
    (name = "r2", external = (address = "unix:${folder}/r2.sock", http = (style = proxy))),
    (name = "d1", external = (address = "unix:${folder}/d1.sock", http = (style = proxy)))],
  extensions = [(modules = [(name = "bucket", internal = true, esModule = embed "bucket.js")])],
  sockets = [(name = "tcp", address = "127.0.0.1:${port}", http = (), service = "main")]);
`,
      );
      const child = await startProgram(WORKERD, ['serve', path.join(folder, 'config.capnp')], port);
      return {
        name: NAME,
        origin: `http://127.0.0.1:${port}`,
        pids: () => [child.pid ?? 0],
        seeded: true,
        async stop() {
          await stopProgram(child);
          for (const store of stores) store.close();
          rmSync(folder, { recursive: true, force: true });
        },
      };
    },
  };
}
