/** What handlers reach from inside the real sandbox of the real host, and what their owner is told of it. */

import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { deploy, jsonPost, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const PROBE = `
import { connect } from 'cloudflare:sockets';
export default {
  async fetch(request) {
    const { url, tcp, many } = await request.json();
    try {
      if (tcp) {
        const socket = connect(tcp);
        await socket.opened;
        return Response.json({ opened: true });
      }
      if (many) {
        const statuses = await Promise.all(many.map((one) => fetch(one).then(async (answer) => { await answer.text(); return answer.status; }, String)));
        return Response.json({ statuses });
      }
      const answer = await fetch(url);
      return Response.json({ status: answer.status, text: await answer.text() });
    } catch (error) { return Response.json({ error: String(error) }); }
  },
};`;
const NEIGHBOUR = `export default { fetch: (request) => new Response('neighbour ' + new URL(request.url).pathname + ' ' + request.headers.get('x-payer') + ' ' + request.headers.get('x-forwarded-prefix')) };`;

let host: TestHost;
/** Something private on the machine: nobody may reach it. */
let secret: Server;
let secretHits = 0;
const pay = () => mppFetch(host.network, 0);
const ask = async (what: object) => {
  const answer = await fetch(`${host.url}/probe/`, jsonPost(what));
  return (await answer.json()) as {
    status?: number;
    text?: string;
    error?: string;
    opened?: boolean;
    statuses?: unknown[];
  };
};
const secretPort = () => (secret.address() as AddressInfo).port;

beforeAll(async () => {
  secret = createServer((_request, reply) => {
    secretHits++;
    reply.end('private');
  });
  secret.listen(0, '0.0.0.0');
  await once(secret, 'listening');
  host = await startHost();
  await deploy(pay(), host.url, { slug: 'probe', code: PROBE });
  await deploy(pay(), host.url, { slug: 'neighbour', code: NEIGHBOUR });
});
afterAll(async () => {
  await host?.stop();
  secret.close();
});

describe('handlers reach', () => {
  test('each other, by path and by name, on the public port', async () => {
    const { port } = host;
    const byPath = await ask({ url: `http://localhost:${port}/neighbour/a` });
    expect(byPath).toEqual({ status: 200, text: 'neighbour /a null /neighbour' });
    const byName = await ask({ url: `http://neighbour.localhost:${port}/b` });
    expect(byName).toEqual({ status: 200, text: 'neighbour /b null null' });
  });
});

describe('handlers do not reach', () => {
  test('anything on this machine, by any name for it', async () => {
    for (const name of [
      '127.0.0.1',
      'localhost',
      '[::1]',
      '0.0.0.0',
      '2130706433',
      '0x7f.1',
      '[::ffff:127.0.0.1]',
      'x.localhost',
    ]) {
      const answer = await ask({ url: `http://${name}:${secretPort()}/` });
      expect([name, answer.status]).toEqual([name, 403]);
      expect(JSON.parse(answer.text ?? '')).toMatchObject({ code: 'egress_refused' });
    }
    expect((await ask({ tcp: `127.0.0.1:${secretPort()}` })).opened).toBeUndefined();
    expect(secretHits).toBe(0);
  });

  test('the operator’s port, also not by the host’s public name', async () => {
    for (const name of ['localhost', '127.0.0.1', 'probe.localhost']) {
      expect((await ask({ url: `http://${name}:${host.adminPort}/metrics` })).status).toBe(403);
    }
  });

  test('the metadata address, and the local payment network’s own port', async () => {
    expect((await ask({ url: 'http://169.254.169.254/latest/meta-data/' })).status).toBe(403);
    expect((await ask({ url: host.network.rpcUrl })).status).toBe(403);
  });
});

test('many requests to many names at once are answered, each for itself', async () => {
  const many = Array.from({ length: 150 }, (_, index) => `http://10.0.${index}.1/`);
  const { statuses } = await ask({ many });
  expect(statuses).toEqual(Array(150).fill(403));
  const again = await ask({ many });
  expect(again.statuses).toEqual(Array(150).fill(403));
});

test('the owner reads in the log what was refused', async () => {
  await ask({ url: 'http://192.168.77.7/' });
  const line = await until(async () => {
    const answer = await pay()(`${host.url}/_admin/probe/logs`);
    const text = await answer.text();
    return text.includes('192.168.77.7:80') ? text : undefined;
  });
  expect(line).toContain('private');
});
