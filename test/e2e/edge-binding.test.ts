/** `env.EDGE`: what a handler reaches by it, and whom the callee sees, in the real sandbox of the real host. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { commandOf, processTree } from '../bench/processes.ts';
import { deploy, jsonPost, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const PROBE = `export default { async fetch(request, env) {
  const { url, headers, byEgress, socket, times = 0 } = await request.json();
  if (!env.EDGE) return Response.json({ bound: false });
  for (let count = 0; count < times; count++) await (await env.EDGE.fetch(url, { redirect: 'manual' })).text();
  const init = { headers: { ...headers, ...(socket ? { upgrade: 'websocket' } : {}) } };
  const answer = await (byEgress ? fetch(url, init) : env.EDGE.fetch(url, init));
  if (answer.webSocket) {
    const { promise, resolve } = Promise.withResolvers();
    answer.webSocket.accept();
    answer.webSocket.addEventListener('message', ({ data }) => resolve(data));
    answer.webSocket.send('ping');
    return Response.json({ status: answer.status, text: await promise });
  }
  return Response.json({ status: answer.status, text: await answer.text() });
} };`;
const NEIGHBOUR = `export default { fetch(request) {
  if (request.headers.get('upgrade') === 'websocket') {
    const [client, server] = Object.values(new WebSocketPair());
    server.accept();
    server.addEventListener('message', ({ data }) => server.send(data + ' pong'));
    return new Response(null, { status: 101, webSocket: client });
  }
  return Response.json({ url: request.url, headers: Object.fromEntries(request.headers) });
} };`;

let host: TestHost;
/** Something private on the machine. */
let secret: Server;
let secretHits = 0;
const pay = () => mppFetch(host.network, 0);
interface Asked {
  url: string;
  headers?: Record<string, string>;
  byEgress?: true;
  socket?: true;
  /** So often before that. */
  times?: number;
}
const ask = async (what: Asked, slug = 'probe') =>
  (await (await fetch(`${host.url}/${slug}/`, jsonPost(what))).json()) as {
    bound?: boolean;
    status: number;
    text: string;
  };
const seen = async (what: Asked) =>
  JSON.parse((await ask(what)).text) as { url: string; headers: Record<string, string> };

beforeAll(async () => {
  secret = createServer((_request, reply) => {
    secretHits++;
    reply.end('private');
  });
  secret.listen(0, '127.0.0.1');
  await once(secret, 'listening');
  host = await startHost();
  await deploy(pay(), host.url, { slug: 'probe', code: PROBE, bindings: { edge: { EDGE: {} } } });
  await deploy(pay(), host.url, { slug: 'unbound', code: PROBE });
  const paidRoutes = [{ method: 'GET', path: '/paid', price: '0.001' }];
  await deploy(pay(), host.url, { slug: 'neighbour', code: NEIGHBOUR, paidRoutes });
});
afterAll(async () => {
  await host?.stop();
  secret.close();
});

describe('by the binding', () => {
  test('a deployment is reached by path and by name, and is started where it is cold', async () => {
    const { port, url } = host;
    const byPath = await seen({ url: `${url}/neighbour/a?b=c` });
    expect([byPath.url, byPath.headers['x-forwarded-prefix']]).toEqual([`${url}/a?b=c`, '/neighbour']);
    expect((await seen({ url: `http://neighbour.localhost:${port}/b` })).url).toBe(
      `http://neighbour.localhost:${port}/b`,
    );
    expect(await ask({ url: `${url}/neighbour/`, socket: true })).toEqual({ status: 101, text: 'ping pong' });
  });

  test('the callee sees who calls as by the outbound proxy, whatever the handler says of itself', async () => {
    // A name: the proxy refuses loopback addresses.
    const url = `http://localhost:${host.port}/neighbour/`;
    const headers = {
      'x-turnpike-caller': 'other.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
      'x-turnpike-x': '1',
      'x-forwarded-for': '203.0.113.9',
      'x-forwarded-host': 'forged.example',
      'x-payer': '0x0000000000000000000000000000000000000001',
      'cf-connecting-ip': '203.0.113.9',
    };
    const [direct, byEgress] = [await seen({ url, headers }), await seen({ url, headers, byEgress: true })];
    expect(direct.headers['cf-connecting-ip']).toMatch(/^fd/);
    for (const name of [
      'cf-connecting-ip',
      'x-forwarded-for',
      'x-forwarded-host',
      'x-forwarded-proto',
      'x-payer',
      'host',
    ])
      expect(direct.headers[name], name).toBe(byEgress.headers[name]);
    expect(Object.keys(direct.headers).filter((name) => name.startsWith('x-turnpike-'))).toEqual([]);
    // The scheme that the handler calls, as the proxy says it.
    const https = url.replace('http:', 'https:');
    expect((await seen({ url: https })).headers['x-forwarded-proto']).toBe(
      (await seen({ url: https, byEgress: true })).headers['x-forwarded-proto'],
    );
  });

  test('prices are asked, calls are counted, and nothing but this host is reached', async () => {
    expect((await ask({ url: `${host.url}/neighbour/paid` })).status).toBe(402);
    const { port } = secret.address() as AddressInfo;
    for (const url of [`http://127.0.0.1:${port}/`, `http://localhost:${port}/`, 'http://example.com/'])
      await ask({ url });
    expect(secretHits).toBe(0);
    const before = await requests('neighbour');
    await ask({ url: `${host.url}/neighbour/counted` });
    await until(async () => (await requests('neighbour')) !== before || undefined);
  });

  test('calls that were answered do not count as under way, redirects neither', async () => {
    const { status } = await ask({ url: `${host.url}/neighbour`, times: 512 });
    expect(status).toBe(200);
  });

  test('a deployment without it has none', async () => {
    expect(await ask({ url: `${host.url}/neighbour/` }, 'unbound')).toEqual({ bound: false });
  });

  test('an edge that is started again serves on the same socket', async () => {
    const edges = processTree([host.pid]).filter((pid) => commandOf(pid).includes('host/edge/main.ts'));
    expect(edges).not.toEqual([]);
    for (const pid of edges) process.kill(pid, 'SIGKILL');
    await until(async () => {
      const { status } = await ask({ url: `${host.url}/neighbour/` }).catch(() => ({ status: 0 }));
      return status === 200 || undefined;
    });
  });
});

/** As its owner reads them. */
async function requests(slug: string): Promise<string> {
  return (await pay()(`${host.url}/_admin/${slug}/usage`)).text();
}
