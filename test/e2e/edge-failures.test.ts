/** What callers see when an instance dies, is replaced, or when they leave themselves. */
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Problem } from '../../host/shared/problem.ts';
import { type Harness, route, startHarness, startWorkerd, type Workerd } from './edge/harness.ts';
import { rawConnection } from './edge/raw.ts';
import { until } from './support/until.ts';

const MODULE = `
let cancelled = 0, hanging = 0;
export default {
  async fetch(request) {
    const url = new URL(request.url);
    switch (url.pathname) {
      case '/hang':
        hanging += 1;
        await scheduler.wait(60_000);
        return new Response();
      case '/stream': {
        let timer;
        return new Response(new ReadableStream({
          start(c) { timer = setInterval(() => c.enqueue(new TextEncoder().encode('tick\\n')), 20); },
          cancel() { cancelled += 1; clearInterval(timer); },
        }));
      }
      case '/long': return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(65536)) } }));
      case '/cancelled': return Response.json({ cancelled, hanging });
      case '/early': return new Response('early', { status: 403 });
    }
    return new Response(NAME + (await request.text()));
  },
};`;

function named(name: string): string {
  return `const NAME = '${name}';\n${MODULE}`;
}

let shared: Harness;
let harness: Harness;
let slug: string;
let count = 0;
let running: Workerd[] = [];
let servers: Server[] = [];

async function instance(name: string): Promise<Workerd> {
  const workerd = await startWorkerd(harness.folder, `${slug}-${name}`, named(name));
  running.push(workerd);
  return workerd;
}

beforeAll(async () => {
  shared = await startHarness();
});

afterAll(() => shared.close());

/** Each test has slugs of its own; those that end the edge or control start their own. */
beforeEach(async () => {
  count += 1;
  slug = `slug-${count}`;
  await use(shared);
});

afterEach(async () => {
  await Promise.all(running.map((workerd) => workerd.stop()));
  running = [];
  for (const server of servers) server.close();
  servers = [];
});

async function use(chosen: Harness): Promise<void> {
  harness = chosen;
  harness.acquired.length = 0;
  harness.traffic.length = 0;
  await harness.edge.call('setRoutes', [route(slug), route(`${slug}-other`)]);
}

describe('an instance that dies', () => {
  test('in the middle of an answer: the caller sees it break', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const response = await fetch(`${harness.origin}/${slug}/stream`);
    const reader = response.body!.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toContain('tick');
    await workerd.stop('SIGKILL');
    await expect(
      (async () => {
        for (;;) if ((await reader.read()).done) return 'a regular end';
      })(),
    ).rejects.toThrow();
  });

  test('before it answers: 503 with the reason that control gives', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const pending = fetch(`${harness.origin}/${slug}/hang`, { method: 'POST', body: 'x' });
    await until(() => harness.traffic.some((report) => report.slug === slug && report.inFlight === 1));
    await workerd.stop('SIGKILL');
    harness.edge.notify('failed', {
      slug,
      generation: 1,
      code: 'cpu_exceeded',
      detail: 'It used 10 s of CPU.',
    });
    const response = await pending;
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({ code: 'cpu_exceeded', detail: 'It used 10 s of CPU.' });
  });

  test('before it answers, without a reason: 502', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const pending = fetch(`${harness.origin}/${slug}/hang`, { method: 'POST', body: 'x' });
    await until(() => harness.traffic.some((report) => report.slug === slug && report.inFlight === 1));
    await workerd.stop('SIGKILL');
    const response = await pending;
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({ code: 'upstream_failed' });
  });

  test('unnoticed, between requests: the next one starts it again, whatever its method, and none fails', async () => {
    const first = await instance('a');
    harness.onAcquire = () => ({ socket: first.socket, generation: 1 });
    expect(await (await fetch(`${harness.origin}/${slug}/x`)).text()).toBe('a');
    await first.stop('SIGKILL');
    const second = await instance('b');
    harness.onAcquire = () => ({ socket: second.socket, generation: 2 });
    const bodies = await Promise.all(
      ['1', '2', '3'].map(async (body) => {
        const response = await fetch(`${harness.origin}/${slug}/x`, { method: 'POST', body });
        return `${response.status} ${await response.text()}`;
      }),
    );
    expect(bodies).toEqual(['200 b1', '200 b2', '200 b3']);
    expect(harness.acquired).toEqual([slug, slug]);
  });

  test('and does not start again: the code says why, and other slugs are served', async () => {
    const workerd = await instance('a');
    harness.onAcquire = async (asked) => {
      if (asked === slug) throw new Problem('crash_loop', 'Again in 30 s.', { extensions: { retryAfter: 30 } });
      return { socket: workerd.socket, generation: 1 };
    };
    const response = await fetch(`${harness.origin}/${slug}/x`);
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('30');
    expect(await response.json()).toMatchObject({ code: 'crash_loop' });
    expect(await (await fetch(`${harness.origin}/${slug}-other/x`)).text()).toBe('a');
  });

  test('and is hammered: control is asked a few times a second, and at once when something has changed', async () => {
    const workerd = await instance('a');
    let asked = 0;
    harness.onAcquire = async () => {
      asked += 1;
      throw new Problem('crash_loop', 'Again in 30 s.', { extensions: { retryAfter: 30 } });
    };
    const from = performance.now();
    for (let call = 0; call < 300; call++) {
      const response = await fetch(`${harness.origin}/${slug}/x`);
      expect([response.status, response.headers.get('retry-after')]).toEqual([503, '30']);
      await response.arrayBuffer();
    }
    expect(asked).toBeLessThanOrEqual(1 + (performance.now() - from) / 250);
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    await harness.edge.call('putRoute', route(slug));
    expect(await (await fetch(`${harness.origin}/${slug}/x`)).text()).toBe('a');
  });
});

describe('an instance that is replaced', () => {
  test('requests in flight end on the old one, new ones go to the new one, retire waits', async () => {
    const [first, second] = [await instance('a'), await instance('b')];
    harness.onAcquire = () => ({ socket: first.socket, generation: 1 });
    const streaming = await fetch(`${harness.origin}/${slug}/stream`);
    const reader = streaming.body!.getReader();
    await reader.read();
    await harness.edge.call('setInstance', { slug, generation: 2, first: 2, socket: second.socket });
    expect(await (await fetch(`${harness.origin}/${slug}/x`)).text()).toBe('b');
    expect(await harness.edge.call('retire', { slug, generation: 1, timeoutMs: 50 })).toEqual({ inFlight: 1 });
    expect((await reader.read()).done).toBe(false);
    const retired = harness.edge.call('retire', { slug, generation: 1, timeoutMs: 30_000 });
    await reader.cancel();
    expect(await retired).toEqual({ inFlight: 0 });
    expect(harness.acquired).toHaveLength(1);
  });

  test('no request fails under load', async () => {
    const instances = [await instance('a'), await instance('b')];
    harness.onAcquire = () => ({ socket: instances[0]!.socket, generation: 1 });
    let stop = false;
    const statuses = new Map<number, number>();
    const callers = Array.from({ length: 8 }, async () => {
      while (!stop) {
        const response = await fetch(`${harness.origin}/${slug}/x`, { method: 'POST', body: 'y' });
        await response.text();
        statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
      }
    });
    for (let generation = 2; generation <= 20; generation += 1) {
      await harness.edge.call('setInstance', {
        slug,
        generation,
        first: generation,
        socket: instances[generation % 2]!.socket,
      });
      const old = { slug, generation: generation - 1, timeoutMs: 5_000 };
      expect(await harness.edge.call('retire', old)).toEqual({ inFlight: 0 });
    }
    stop = true;
    await Promise.all(callers);
    expect([...statuses.keys()]).toEqual([200]);
    expect(statuses.get(200)).toBeGreaterThan(20);
  });
});

describe('a caller that leaves', () => {
  test('while the answer streams: the handler learns of it', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const controller = new AbortController();
    const response = await fetch(`${harness.origin}/${slug}/stream`, { signal: controller.signal });
    await response.body!.getReader().read();
    controller.abort();
    await until(async () => {
      const { cancelled } = (await (await fetch(`${harness.origin}/${slug}/cancelled`)).json()) as {
        cancelled: number;
      };
      return cancelled === 1;
    });
  });

  test('before the instance has started: nothing is sent to it', async () => {
    const workerd = await instance('a');
    let start = () => {};
    harness.onAcquire = () =>
      new Promise((resolve) => {
        start = () => resolve({ socket: workerd.socket, generation: 1 });
      });
    const raw = await rawConnection(harness.port);
    raw.send(`GET /${slug}/hang HTTP/1.1\r\nHost: x\r\n\r\n`);
    await until(() => harness.acquired.length === 1);
    raw.socket.destroy();
    await until(() => harness.traffic.some((report) => report.slug === slug && report.inFlight === 0));
    start();
    const seen = await (await fetch(`${harness.origin}/${slug}/cancelled`)).json();
    expect(seen).toEqual({ cancelled: 0, hanging: 0 });
  });

  test('in the middle of its upload: the connection to the instance ends too', async () => {
    let closed = false;
    let received = '';
    const socket = join(harness.folder, `${slug}.sock`);
    const server = createServer((connection) => {
      connection.on('data', (chunk) => {
        received += chunk;
      });
      connection.on('error', () => {});
      connection.on('close', () => {
        closed = true;
      });
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    harness.onAcquire = () => ({ socket, generation: 1 });
    const raw = await rawConnection(harness.port);
    raw.send(`POST /${slug}/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc`);
    await until(() => received.endsWith('abc'));
    raw.socket.destroy();
    await until(() => closed);
  });
});

describe('an instance that talks nonsense', () => {
  async function answering(...answers: (string | undefined)[]): Promise<{ requests: string[] }> {
    const seen = { requests: [] as string[] };
    const socket = join(harness.folder, `${slug}.sock`);
    const server = createServer((connection) => {
      connection.on('error', () => {});
      connection.on('data', (chunk) => {
        seen.requests.push(chunk.toString('latin1'));
        const answer = answers[Math.min(seen.requests.length, answers.length) - 1];
        if (answer === undefined) connection.destroy();
        else connection.write(Buffer.from(answer, 'latin1'));
      });
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    harness.onAcquire = () => ({ socket, generation: 1 });
    return seen;
  }

  const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

  test.each([
    ['no HTTP', 'hello\r\n\r\n'],
    ['both framings', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok'],
    ['an endless head', `HTTP/1.1 200 OK\r\nA: ${'a'.repeat(200_000)}`],
    ['a split header', 'HTTP/1.1 200 OK\r\nA: b\nSet-Cookie: c=d\r\n\r\n'],
    ['a protocol that nobody asked for', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n'],
  ])('%s: 502', async (_name, answer) => {
    await answering(answer);
    const response = await fetch(`${harness.origin}/${slug}/x`);
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({ code: 'upstream_failed' });
  });

  test('bytes after an answer never become the answer to the next request', async () => {
    const seen = await answering(`${OK}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil`, OK);
    expect(await (await fetch(`${harness.origin}/${slug}/1`)).text()).toBe('ok');
    expect(await (await fetch(`${harness.origin}/${slug}/2`)).text()).toBe('ok');
    expect(seen.requests).toHaveLength(2);
  });

  test('an idle connection that the server closes costs no request that may be repeated', async () => {
    const seen = await answering(OK, undefined, OK);
    expect(await (await fetch(`${harness.origin}/${slug}/1`)).text()).toBe('ok');
    expect(await (await fetch(`${harness.origin}/${slug}/2`)).text()).toBe('ok');
    expect(seen.requests).toHaveLength(3);
  });

  test('a POST is never sent twice once the handler may have seen it', async () => {
    const seen = await answering(OK, undefined, OK);
    await (await fetch(`${harness.origin}/${slug}/1`)).text();
    const response = await fetch(`${harness.origin}/${slug}/2`, { method: 'POST', body: 'pay' });
    expect(response.status).toBe(502);
    expect(seen.requests).toHaveLength(2);
  });

  test('an answer that ends early is cut, not passed off as whole', async () => {
    const socket = join(harness.folder, `${slug}.sock`);
    const server = createServer((connection) => {
      connection.on('error', () => {});
      connection.once('data', () => connection.end('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc'));
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    harness.onAcquire = () => ({ socket, generation: 1 });
    await expect(fetch(`${harness.origin}/${slug}/x`).then((response) => response.text())).rejects.toThrow();
  });

  test('informational answers are passed on', async () => {
    await answering(`HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n${OK}`);
    const raw = await rawConnection(harness.port);
    raw.send(`GET /${slug}/x HTTP/1.1\r\nHost: x\r\n\r\n`);
    expect(await raw.seen('ok')).toMatch(
      /^HTTP\/1\.1 103 Early Hints\r\nLink: <\/a\.css>\r\n\r\nHTTP\/1\.1 200 OK\r\n/,
    );
    raw.socket.destroy();
  });

  test('an answer before the body is complete reaches the caller', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const raw = await rawConnection(harness.port);
    raw.send(`POST /${slug}/early HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\nabc`);
    expect(await raw.seen('early')).toMatch(/^HTTP\/1\.1 403 /);
    // Most of the body is missing. A caller that hears nothing would send its next request behind it, and lose that.
    expect(raw.received).toContain('\r\nconnection: close\r\n');
    raw.socket.destroy();
  });

  test('after an answer that keeps the connection, the next request is answered however long the body was', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const raw = await rawConnection(harness.port);
    const chunk = `100000\r\n${'a'.repeat(0x100000)}\r\n`;
    raw.send(`POST /${slug}/early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n${chunk}`);
    expect(await raw.seen('early')).not.toContain('connection: close');
    raw.send(`${chunk.repeat(3)}0\r\n\r\nPOST /${slug}/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnext`);
    expect(await raw.seen('anext')).toContain('HTTP/1.1 200 OK');
    raw.socket.destroy();
  });

  test('an answer to a body that the handler leaves unread reaches the caller', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const body = Buffer.alloc(1_000_000);
    const statuses: number[] = [];
    // workerd ends the connection while more is written, sooner or later.
    for (let count = 0; count < 20; count++) {
      const response = await fetch(`${harness.origin}/${slug}/early`, { method: 'POST', body });
      await response.text();
      statuses.push(response.status);
    }
    expect(statuses).toEqual(Array(20).fill(403));
  });
});

describe('the edge itself', () => {
  beforeEach(async () => use(await startHarness()));
  afterEach(() => harness.close());

  test('drains: what runs ends, nothing new begins', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    const streaming = await fetch(`${harness.origin}/${slug}/stream`);
    const reader = streaming.body!.getReader();
    await reader.read();
    let drained = false;
    const draining = harness.edge.call('drain', { timeoutMs: 30_000 }).then(() => {
      drained = true;
    });
    await until(async () => {
      const outcome = await fetch(`${harness.origin}/${slug}/x`).then(
        (response) => response.text(),
        () => 'refused',
      );
      return outcome === 'refused';
    });
    expect((await reader.read()).done).toBe(false);
    expect(drained).toBe(false);
    await reader.cancel();
    await draining;
  });

  test('ends when its channel does', async () => {
    const gone = new Promise((resolve) => harness.process.once('exit', resolve));
    harness.process.disconnect();
    await gone;
  });

  test('counts its requests without naming tenants', async () => {
    const workerd = await instance('a');
    harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
    await (await fetch(`${harness.origin}/${slug}/x`)).text();
    await (await fetch(`${harness.origin}/nobody`)).text();
    const metrics = JSON.stringify(await harness.edge.call('metrics', undefined));
    expect(metrics).toContain('turnpike_edge_requests_total');
    expect(metrics).toContain('"to":"instance","status":"2xx"');
    expect(metrics).not.toContain(slug);
  });

  test('control that is away is a 503, not a hang', async () => {
    await new Promise<void>((resolve) => {
      harness.control.close(() => resolve());
    });
    const response = await fetch(`${harness.origin}/_admin/x`);
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({ code: 'not_ready' });
  });
});
