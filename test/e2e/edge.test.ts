/** The edge process before a real workerd, called with stock clients. */
import { Agent, request } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Problem } from '../../host/shared/problem.ts';
import { type Harness, route, startHarness, startWorkerd, type Workerd } from './edge/harness.ts';
import { until } from './support/until.ts';

const ECHO = `export default {
  async fetch(request) {
    const url = new URL(request.url);
    if (url.pathname === '/hello') return new Response('hello');
    if (url.pathname === '/big') return new Response(new Uint8Array(10_000_000).fill(7));
    if (url.pathname === '/count') {
      let bytes = 0;
      for await (const chunk of request.body ?? []) bytes += chunk.length;
      return Response.json({ bytes });
    }
    if (url.pathname === '/pipe') return new Response(request.body);
    return new Response(request.method === 'HEAD' ? null : JSON.stringify({
      method: request.method, url: request.url, headers: [...request.headers], cf: request.cf,
      body: await request.text(),
    }), { headers: { 'content-type': 'application/json', 'x-charge': '1', 'x-turnpike-secret': '1', 'x-own': 'yes' } });
  },
};`;

let harness: Harness;
let workerd: Workerd;

beforeAll(async () => {
  harness = await startHarness();
  workerd = await startWorkerd(harness.folder, 'echo', ECHO);
  harness.onAcquire = async (slug) => {
    if (slug === 'broken') throw new Problem('start_failed', 'It did not start.');
    return { socket: workerd.socket, generation: 1 };
  };
  await harness.edge.call('setRoutes', [
    route('hello'),
    route('broken'),
    route('old', { state: 'expired' }),
    route('new', { state: 'deploying' }),
    route('shop', { paidRoutes: [{ method: 'POST', path: '/v1/buy' }], domains: ['shop.example.com'] }),
  ]);
});

afterAll(async () => {
  await workerd?.stop();
  await harness?.close();
});

interface Seen {
  by?: string;
  method: string;
  url: string;
  headers: [string, string][];
  cf: Record<string, unknown>;
  body: string;
}

describe('routing', () => {
  test('a path address reaches the handler with the slug taken off', async () => {
    const response = await fetch(`${harness.origin}/hello/a%20b/c?x=1`);
    const seen = (await response.json()) as Seen;
    expect(response.status).toBe(200);
    expect(seen.url).toBe(`http://127.0.0.1:${harness.port}/a%20b/c?x=1`);
    expect(Object.fromEntries(seen.headers)['x-forwarded-prefix']).toBe('/hello');
    expect(response.headers.get('x-charge')).toBeNull();
    expect(response.headers.get('x-turnpike-secret')).toBeNull();
    expect(response.headers.get('x-own')).toBe('yes');
    expect(response.headers.get('x-request-id')).toMatch(/^[a-f0-9]+-/);
  });

  test.each(['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])('%s reaches the handler', async (method) => {
    const body = method === 'GET' ? undefined : 'body';
    const response = await fetch(`${harness.origin}/hello/x`, { method, ...(body ? { body } : {}) });
    const seen = (await response.json()) as Seen;
    expect(seen).toMatchObject({ method, body: body ?? '' });
  });

  test('HEAD reaches the handler', async () => {
    const response = await fetch(`${harness.origin}/hello`, { method: 'HEAD' });
    expect(response.status).toBe(200);
    expect(response.headers.get('x-own')).toBe('yes');
  });

  test('own pages and everything that is no slug go to control', async () => {
    for (const path of ['/', '/_admin/deploy', '/llms.txt', '/docs', '/healthz', '/.well-known/x', '/a/../_admin']) {
      const response = await fetch(`${harness.origin}${path}`);
      expect(((await response.json()) as Seen).by).toBe('control');
    }
  });

  test.each(['GET', 'POST'])('%s to a slug that is being deployed: come again', async (method) => {
    const response = await fetch(`${harness.origin}/new/x`, { method });
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1']);
    expect(await response.json()).toMatchObject({ code: 'not_ready', detail: expect.stringContaining('try again') });
    expect(harness.acquired).not.toContain('new');
  });

  test('an unknown slug is a 404 problem', async () => {
    const response = await fetch(`${harness.origin}/nobody/x`);
    expect(response.status).toBe(404);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    expect(await response.json()).toMatchObject({ code: 'not_found', status: 404 });
  });

  test('expired tenants and paid routes go to control with the path the tenant would see', async () => {
    const expired = (await (await fetch(`${harness.origin}/old/x?y`)).json()) as { context: object };
    expect(expired.context).toMatchObject({ slug: 'old', tenantPath: '/x?y', prefix: '/old', via: 'path' });
    const paid = (await (
      await fetch(`${harness.origin}/shop/v1/buy`, { method: 'POST', body: 'x', headers: { 'x-payer': 'me' } })
    ).json()) as { context: object; body: string; headers: Record<string, string> };
    expect(paid).toMatchObject({ context: { slug: 'shop', tenantPath: '/v1/buy' }, body: 'x' });
    expect(paid.headers['x-payer']).toBeUndefined();
  });

  test('a start that fails is a 503 problem with its code', async () => {
    const response = await fetch(`${harness.origin}/broken/`);
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('1');
    expect(await response.json()).toMatchObject({ code: 'start_failed', detail: 'It did not start.' });
  });
});

describe('streaming', () => {
  test('10 MB down and up', async () => {
    const down = await (await fetch(`${harness.origin}/hello/big`)).arrayBuffer();
    expect(down.byteLength).toBe(10_000_000);
    const up = await fetch(`${harness.origin}/hello/count`, { method: 'POST', body: new Uint8Array(10_000_000) });
    expect(await up.json()).toEqual({ bytes: 10_000_000 });
  });

  test('uploads follow each other on one connection', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    let sockets = 0;
    for (let i = 0; i < 8; i += 1) {
      const bytes = await new Promise<string>((resolve, reject) => {
        const asked = request(`${harness.origin}/hello/count`, { method: 'POST', agent }, (response) => {
          response.setEncoding('utf8');
          response.on('data', resolve);
        });
        asked.on('socket', (socket) => {
          if (socket.listenerCount('counted') === 0) sockets += 1;
          socket.on('counted', () => {});
        });
        asked.on('error', reject);
        asked.end(Buffer.alloc(3_000_000));
      });
      expect(bytes).toBe('{"bytes":3000000}');
    }
    expect(sockets).toBe(1);
    agent.destroy();
  });

  test('traffic is reported', async () => {
    const sum = (what: 'bytesIn' | 'bytesOut') => harness.traffic.reduce((total, report) => total + report[what], 0);
    await until(() => sum('bytesIn') >= 10_000_000 && sum('bytesOut') >= 10_000_000);
  });
});
