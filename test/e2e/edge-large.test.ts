/** Large bodies side by side, with slow and vanishing callers: every byte arrives, in order, and memory stays flat. */
import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { request } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Harness, route, startHarness, startWorkerd, type Workerd } from './edge/harness.ts';
import { rawConnection } from './edge/raw.ts';
import { until } from './support/until.ts';

/**
 * `/pattern/<seed>/<bytes>`: bytes that depend on their position; `/fast/<byte>/<bytes>`: the same one again and again;
 * `/pipe`: the body back as it comes.
 */
const MODULE = `
function piece(seed, from, length) {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i += 1) bytes[i] = (seed * 31 + (from + i) * 7 + ((from + i) >> 8)) & 255;
  return bytes;
}
export default {
  async fetch(request) {
    const [, what, seed, size] = new URL(request.url).pathname.split('/');
    if (what === 'small') return new Response('small');
    if (what === 'fast') {
      const same = new Uint8Array(65_536).fill(+seed);
      let left = +size / 65_536;
      return new Response(new ReadableStream({
        pull(controller) {
          if (left-- <= 0) return controller.close();
          controller.enqueue(same.slice());
        },
      }));
    }
    if (what === 'pipe') return new Response(request.body);
    if (what === 'sized') return new Response(piece(+seed, 0, +size));
    let at = 0;
    return new Response(new ReadableStream({
      pull(controller) {
        const length = Math.min(50_021, +size - at);
        if (length <= 0) return controller.close();
        controller.enqueue(piece(+seed, at, length));
        at += length;
      },
    }));
  },
};`;

let harness: Harness;
let workerd: Workerd;

beforeAll(async () => {
  harness = await startHarness();
  workerd = await startWorkerd(harness.folder, 'large', MODULE);
  harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
  await harness.edge.call('setRoutes', [route('big'), route('other')]);
});

afterAll(async () => {
  await workerd?.stop();
  await harness?.close();
});

/** Sends a body in pieces of odd sizes, reads the answer with pauses, and gives back its digest. */
function call(path: string, body: Buffer | undefined, slow: boolean, chunked = false): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(
      `${harness.origin}/big${path}`,
      {
        method: body ? 'POST' : 'GET',
        agent: false,
        headers: body && !chunked ? { 'content-length': String(body.length) } : {},
      },
      (response) => {
        const hash = createHash('sha256');
        response.on('data', (chunk) => {
          hash.update(chunk);
          if (!slow) return;
          response.pause();
          setImmediate(() => response.resume());
        });
        response.on('end', () => resolve(hash.digest('hex')));
        response.on('error', reject);
      },
    );
    asked.on('error', reject);
    if (!body) {
      asked.end();
      return;
    }
    let at = 0;
    const send = () => {
      while (at < body.length) {
        const length = 1 + ((at * 7 + 13) % 90_001);
        const more = asked.write(body.subarray(at, at + length));
        at += length;
        if (!more) {
          asked.once('drain', send);
          return;
        }
      }
      asked.end();
    };
    send();
  });
}

function pattern(seed: number, size: number): string {
  const bytes = Buffer.alloc(size);
  for (let i = 0; i < size; i += 1) bytes[i] = (seed * 31 + i * 7 + (i >> 8)) & 255;
  return createHash('sha256').update(bytes).digest('hex');
}

test('downloads side by side, some of them slow', async () => {
  const size = 3_000_017;
  const digests = await Promise.all(
    Array.from({ length: 8 }, (_, seed) =>
      call(`/${seed % 2 ? 'sized' : 'pattern'}/${seed}/${size}`, undefined, seed % 3 === 0),
    ),
  );
  expect(digests).toEqual(Array.from({ length: 8 }, (_, seed) => pattern(seed, size)));
});

test('bodies there and back side by side, by length and chunked', async () => {
  const bodies = Array.from({ length: 8 }, (_, index) => randomBytes(2_000_000 + index * 77_777));
  const digests = await Promise.all(bodies.map((body, index) => call('/pipe', body, index % 3 === 0, index % 2 === 0)));
  expect(digests).toEqual(bodies.map((body) => createHash('sha256').update(body).digest('hex')));
});

test('downloads that wait for their turns beside another tenant, some of them slow', async () => {
  const size = 512 * 65_536;
  const done = new AbortController();
  const times: number[] = [];
  const other = (async () => {
    while (!done.signal.aborted) {
      const began = performance.now();
      expect(await (await fetch(`${harness.origin}/other/small`)).text()).toBe('small');
      times.push(performance.now() - began);
    }
  })();
  const digests = await Promise.all(
    Array.from({ length: 16 }, (_, seed) => call(`/fast/${seed}/${size}`, undefined, seed % 3 === 0)),
  );
  done.abort();
  await other;
  expect(digests).toEqual(
    Array.from({ length: 16 }, (_, seed) => createHash('sha256').update(Buffer.alloc(size, seed)).digest('hex')),
  );
  expect(times.length).toBeGreaterThan(10);
});

test('callers that vanish in the middle disturb nobody', async () => {
  const gone = await Promise.all(
    Array.from({ length: 10 }, async (_, index) => {
      const raw = await rawConnection(harness.port);
      raw.send(
        index % 2
          ? `GET /big/pattern/1/50000000 HTTP/1.1\r\nHost: x\r\n\r\n`
          : `POST /big/pipe HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n`,
      );
      if (index % 2 === 0) raw.send(Buffer.alloc(500_000));
      await raw.seen('HTTP/1.1 200');
      return raw;
    }),
  );
  const body = randomBytes(4_000_000);
  const digest = call('/pipe', body, true);
  for (const raw of gone) raw.socket.destroy();
  expect(await digest).toBe(createHash('sha256').update(body).digest('hex'));
  await until(() => harness.traffic.at(-1)?.inFlight === 0);
});

test('memory does not grow with the bytes that pass, nor with callers that do not read', async () => {
  await call('/pattern/1/20000000', undefined, false);
  const before = await rss();
  for (let i = 0; i < 5; i += 1) await call('/pattern/1/20000000', undefined, false);
  const silent = await Promise.all(
    Array.from({ length: 40 }, async () => {
      const raw = await rawConnection(harness.port);
      raw.socket.pause();
      raw.send('GET /big/pattern/1/50000000 HTTP/1.1\r\nHost: x\r\n\r\n');
      return raw;
    }),
  );
  await until(() => harness.traffic.some(({ inFlight }) => inFlight === 40));
  expect((await rss()) - before).toBeLessThan(80_000_000);
  for (const raw of silent) raw.socket.destroy();
});

/** Resident memory of the edge, bytes. */
async function rss(): Promise<number> {
  const status = await readFile(`/proc/${harness.process.pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
}
