/** Raw bytes on the edge's port: smuggling, nonsense, slow and half requests, pipelining, Expect. */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Harness, route, startHarness, startWorkerd, type Workerd } from './edge/harness.ts';
import { exchange, rawConnection } from './edge/raw.ts';
import { until } from './support/until.ts';

const MODULE = `let count = 0;
export default {
  async fetch(request) {
    const url = new URL(request.url);
    if (url.pathname === '/hang') await scheduler.wait(60_000);
    if (url.pathname === '/forever') return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(65536)) } }));
    const body = await request.text();
    return new Response(JSON.stringify({ seen: url.pathname, method: request.method, body, count: ++count, headers: [...request.headers].map(([n]) => n) }) + '|');
  },
};`;

let harness: Harness;
let workerd: Workerd;

beforeAll(async () => {
  harness = await startHarness({ headTimeoutMs: 1_500, keepAliveMs: 1_500, stallMs: 2_000 });
  workerd = await startWorkerd(harness.folder, 'w', MODULE);
  harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
  await harness.edge.call('setRoutes', [
    route('hello', { maxBodyBytes: 1_000, idleTimeoutMs: 1_000 }),
    route('slow', { idleTimeoutMs: 60_000 }),
    route('shop', { paidRoutes: [{ method: '*', path: '/paid' }] }),
  ]);
});

afterAll(async () => {
  await workerd?.stop();
  await harness?.close();
});

describe('smuggling', () => {
  test.each([
    ['both framings', 'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n'],
    ['two lengths', 'Content-Length: 4\r\nContent-Length: 5\r\n'],
    ['a coding in disguise', 'Transfer-Encoding: xchunked\r\n'],
    ['a coding with a tab', 'Transfer-Encoding:\tchunked\r\n'],
    ['a folded coding', 'Transfer-Encoding:\r\n chunked\r\n'],
    ['a space before the colon', 'Transfer-Encoding : chunked\r\n'],
    ['a bare line feed', 'A: b\nTransfer-Encoding: chunked\r\n'],
    ['a line feed alone as line end', 'A: b\n'],
    ['two hosts', 'Host: y\r\n'],
  ])('%s: one refusal, and nothing after it is read', async (_name, lines) => {
    const answer = await exchange(
      harness.port,
      `POST /hello/x HTTP/1.1\r\nHost: x\r\n${lines}\r\n0\r\n\r\nGET /hello/smuggled HTTP/1.1\r\nHost: x\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 (400|501) /);
    expect(answer).toContain('connection: close');
    expect(answer).toContain('application/problem+json');
    expect(answer.match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(answer).not.toContain('"seen"');
  });

  test('a chunked body is framed anew: what follows it is the next request, seen once', async () => {
    const answer = await exchange(
      harness.port,
      'POST /hello/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;x=GET\r\nabc\r\n0\r\nX-T: 1\r\n\r\n' +
        'GET /hello/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
    );
    expect(answer.match(/"seen":"[^"]*"/g)).toEqual(['"seen":"/a"', '"seen":"/b"']);
    expect(answer).toContain('"body":"abc"');
    expect(answer).not.toContain('x-t');
  });

  test('a malformed chunk ends the request; the handler answers nothing to it', async () => {
    const answer = await exchange(
      harness.port,
      'POST /hello/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\nGET /hello/b HTTP/1.1\r\nHost: x\r\n\r\n',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(answer).not.toContain('"seen"');
  });

  test('h2c is not upgraded to', async () => {
    const answer = await exchange(
      harness.port,
      'GET /hello/a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(answer).not.toMatch(/"(upgrade|http2-settings)"/);
  });

  test('a header that the caller names in Connection cannot remove what the host says', async () => {
    const answer = await exchange(
      harness.port,
      'GET /hello/a HTTP/1.1\r\nHost: x\r\nConnection: close, x-forwarded-for, cf-connecting-ip, x-request-id\r\n\r\n',
    );
    for (const name of ['x-forwarded-for', 'cf-connecting-ip', 'x-request-id']) expect(answer).toContain(`"${name}"`);
  });
});

describe('nonsense', () => {
  test.each([
    ['TLS on the plain port', Buffer.from('16030100a5010000a10303', 'hex').toString('latin1')],
    ['HTTP/2 on the plain port', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['noise', '\x00\xff\x13\x37\r\n\r\n'],
    ['a method nobody knows', 'BREW / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'],
    ['TRACE', 'TRACE /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'],
    ['CONNECT', 'CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n'],
    ['a long head', `GET /hello HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(70_000)}\r\n\r\n`],
    ['a long path', `GET /hello/${'a'.repeat(70_000)} HTTP/1.1\r\nHost: x\r\n\r\n`],
    ['many headers', `GET /hello HTTP/1.1\r\nHost: x\r\n${'A: b\r\n'.repeat(1_000)}\r\n`],
  ])('%s is answered with a problem, or closed', async (_name, bytes) => {
    const answer = await exchange(harness.port, bytes);
    expect(answer).not.toMatch(/^HTTP\/1\.1 2/);
    if (answer !== '') expect(answer).toContain('application/problem+json');
    expect((await fetch(`${harness.origin}/hello/x`)).status).toBe(200);
  });

  test('OPTIONS * and absolute form are answered', async () => {
    expect(await exchange(harness.port, 'OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')).toMatch(/ 204 /);
    const answer = await exchange(
      harness.port,
      'GET http://x/hello/abs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
    );
    expect(answer).toContain('"seen":"/abs"');
  });

  test('HTTP/1.0 is answered without chunks, and closed', async () => {
    const answer = await exchange(harness.port, 'GET /hello/old HTTP/1.0\r\n\r\n');
    expect(answer).toContain('"seen":"/old"');
    expect(answer).not.toContain('transfer-encoding');
  });

  test('an empty line before a request is passed over', async () => {
    const answer = await exchange(harness.port, '\r\nGET /hello/e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    expect(answer).toContain('"seen":"/e"');
  });
});

describe('slow and half', () => {
  test('a head that does not end is given up', async () => {
    const raw = await rawConnection(harness.port);
    raw.send('GET /hello HTTP/1.1\r\nHost:');
    expect(await raw.ended()).toMatch(/^HTTP\/1\.1 408 /);
  });

  test('a silent connection is closed without a word', async () => {
    const raw = await rawConnection(harness.port);
    expect(await raw.ended()).toBe('');
  });

  test('a body that does not come ends in 504 after the idle limit', async () => {
    const raw = await rawConnection(harness.port);
    raw.send('POST /hello/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345');
    expect(await raw.seen('upstream_timeout')).toMatch(/^HTTP\/1\.1 504 /);
    raw.socket.destroy();
  });

  test('a handler that does not answer ends in 504', async () => {
    const response = await fetch(`${harness.origin}/hello/hang`);
    expect(response.status).toBe(504);
    expect(await response.json()).toMatchObject({ code: 'upstream_timeout' });
  });

  test('a caller that does not read is cut off, and memory stays flat', async () => {
    const raw = await rawConnection(harness.port);
    raw.socket.pause();
    const before = await rss(harness.process.pid);
    raw.send('GET /slow/forever HTTP/1.1\r\nHost: x\r\n\r\n');
    await until(() => harness.traffic.some(({ slug, inFlight }) => slug === 'slow' && inFlight === 1));
    harness.traffic.length = 0;
    await until(() => harness.traffic.some(({ slug, inFlight }) => slug === 'slow' && inFlight === 0));
    expect((await rss(harness.process.pid)) - before).toBeLessThan(60_000_000);
    raw.socket.destroy();
  });

  test('a request that arrives byte by byte is served', async () => {
    const raw = await rawConnection(harness.port);
    for (const byte of 'POST /hello/bytes HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc') {
      raw.send(byte);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await raw.seen('|')).toContain('"body":"abc"');
    raw.socket.destroy();
  });
});

describe('bodies', () => {
  test('one over the limit is refused: by its length before it is sent, or as it comes', async () => {
    const head = 'POST /hello/x HTTP/1.1\r\nHost: x\r\n';
    const declared = await exchange(harness.port, `${head}Content-Length: 100000\r\n\r\n`, 'too_large');
    expect(declared).toMatch(/^HTTP\/1\.1 413 /);
    const chunk = `400\r\n${'a'.repeat(1024)}\r\n`;
    const streamed = await exchange(
      harness.port,
      `${head}Transfer-Encoding: chunked\r\n\r\n${chunk}${chunk}`,
      'too_large',
    );
    expect(streamed).toMatch(/^HTTP\/1\.1 413 /);
  });

  test('Expect: 100-continue is answered before the body, and refused ones get their answer instead', async () => {
    const raw = await rawConnection(harness.port);
    raw.send('POST /hello/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n');
    await raw.seen('HTTP/1.1 100 Continue\r\n\r\n');
    expect(raw.received).not.toContain('200');
    raw.send('abc');
    expect(await raw.seen('|')).toContain('"body":"abc"');
    raw.socket.destroy();
    const refused = await exchange(
      harness.port,
      'POST /nobody/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n',
    );
    expect(refused).toMatch(/^HTTP\/1\.1 404 /);
    expect(refused).toContain('connection: close');
  });

  test('control decides itself whether the body is wanted', async () => {
    harness.control.on('checkContinue', (_request, response) => {
      response.writeHead(402).end('pay');
    });
    const answer = await exchange(
      harness.port,
      'POST /shop/paid HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 402 /);
    expect(answer).not.toContain('100 Continue');
  });
});

describe('pipelining', () => {
  test('requests are answered in order', async () => {
    const requests = ['a', 'b', 'nobody', 'c'].map((name) =>
      name === 'nobody'
        ? 'GET /nobody HTTP/1.1\r\nHost: x\r\n\r\n'
        : `POST /hello/${name} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n${name}`,
    );
    const answer = await exchange(
      harness.port,
      `${requests.join('')}GET /hello/z HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`,
    );
    expect(answer.match(/"seen":"[^"]*"|HTTP\/1\.1 404/g)).toEqual([
      '"seen":"/a"',
      '"seen":"/b"',
      'HTTP/1.1 404',
      '"seen":"/c"',
      '"seen":"/z"',
    ]);
  });

  test('a thousand at once are all answered', async () => {
    const answer = await exchange(
      harness.port,
      `${'GET /nobody HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(1_000)}GET /hello/end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`,
    );
    expect(answer.match(/HTTP\/1\.1 404/g)).toHaveLength(1_000);
    expect(answer).toContain('"seen":"/end"');
  });
});

/** Resident memory of a process, bytes. */
async function rss(pid: number | undefined): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
}

test('one slug cannot have more requests under way than its share', async () => {
  const crowd = await startHarness({ maxInFlightPerSlug: 3 });
  try {
    crowd.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    await crowd.edge.call('setRoutes', [route('busy'), route('other')]);
    const waiting = await Promise.all(
      [1, 2, 3].map(async () => {
        const raw = await rawConnection(crowd.port);
        raw.send('GET /busy/hang HTTP/1.1\r\nHost: x\r\n\r\n');
        return raw;
      }),
    );
    await until(() => crowd.traffic.some(({ inFlight }) => inFlight === 3));
    const refused = await fetch(`${crowd.origin}/busy/x`);
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ code: 'overloaded' });
    expect((await fetch(`${crowd.origin}/other/x`)).status).toBe(200);
    for (const raw of waiting) raw.socket.destroy();
    await until(async () => (await fetch(`${crowd.origin}/busy/x`)).status === 200);
  } finally {
    await crowd.close();
  }
});

test('open connections are counted and forgotten', async () => {
  const counted = await startHarness();
  try {
    const connections = async () => {
      const metrics = (await counted.edge.call('metrics', undefined)) as {
        name: string;
        values: { value: number }[];
      }[];
      return metrics.find(({ name }) => name === 'turnpike_edge_connections')?.values[0]?.value;
    };
    const open = await Promise.all(Array.from({ length: 20 }, () => rawConnection(counted.port)));
    await until(async () => (await connections()) === 20);
    for (const raw of open) raw.socket.destroy();
    await until(async () => (await connections()) === 0);
  } finally {
    await counted.close();
  }
});
