/** Half a gigabyte through BUCKET by a real handler, and what it costs in memory. */

import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { expect, test } from 'vitest';
import { peakMemory, type StorageRig } from './storage-rig.ts';

const SIZE = 500 * 1024 * 1024;
const CHUNK = 1024 * 1024;
/** What any process may need beyond what it had, bytes. */
const EXTRA = 100 * 1024 * 1024;

export function streamsInFlatMemory(rig: () => StorageRig): void {
  test('500 MB go in and out with less than 100 MB of extra memory in any process', async () => {
    const { origin, storage, workerd } = rig();
    const pids = [storage.pid, workerd?.pid];
    for (const pid of pids) writeFileSync(`/proc/${pid}/clear_refs`, '5');
    const before = pids.map(peakMemory);
    const sent = createHash('sha256');
    const bytes = Readable.from(
      (function* () {
        for (let i = 0; i < SIZE / CHUNK; i++) {
          const chunk = Buffer.alloc(CHUNK, i % 251);
          sent.update(chunk);
          yield chunk;
        }
      })(),
    );
    await new Promise<void>((resolve, reject) => {
      const put = request(
        `${origin}/r2/put/half-a-gigabyte`,
        { method: 'PUT', headers: { 'Content-Length': SIZE } },
        (response) => {
          let text = '';
          response.setEncoding('utf8').on('data', (chunk: string) => {
            text += chunk;
          });
          response.on('end', () => (JSON.parse(text).size === SIZE ? resolve() : reject(new Error(text))));
        },
      );
      put.on('error', reject);
      pipeline(bytes, put).catch(reject);
    });

    const received = createHash('sha256');
    let size = 0;
    await new Promise<void>((resolve, reject) => {
      request(`${origin}/r2/get/half-a-gigabyte`, (response) => {
        const sink = new Writable({
          write(chunk: Buffer, _encoding, done) {
            received.update(chunk);
            size += chunk.length;
            done();
          },
        });
        pipeline(response, sink).then(resolve, reject);
      })
        .on('error', reject)
        .end();
    });
    expect(size).toBe(SIZE);
    expect(received.digest('hex')).toBe(sent.digest('hex'));
    const extra = pids.map((pid, i) => peakMemory(pid) - (before[i] ?? 0));
    console.log(
      `extra memory: storage ${Math.round((extra[0] ?? 0) / 2 ** 20)} MiB, workerd ${Math.round((extra[1] ?? 0) / 2 ** 20)} MiB`,
    );
    for (const grown of extra) expect(grown).toBeLessThan(EXTRA);
  });
}
