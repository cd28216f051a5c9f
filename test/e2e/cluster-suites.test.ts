/**
 * The suites of the bindings on a host of two nodes: each case by another node than the case before, while both serve the
 * deployment. D1's are in d1-cluster.test.ts.
 */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import WebSocket from 'ws';
import { BINDINGS, CODE, queuesAndWorkflowsSuite, workBy } from './queues-workflows-suite.ts';
import { caseNames } from './storage-rig.ts';
import { deploy, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import type { TestHost } from './support/host.ts';
import { until } from './support/until.ts';

const HANDLER = fileURLToPath(new URL('../fixtures/bindings/worker.js', import.meta.url));
const COUNTS = 12;
const ROOM = `import { DurableObject } from 'cloudflare:workers';
export class Room extends DurableObject {
  fetch(request) {
    const [client, server] = Object.values(new WebSocketPair());
    this.ctx.acceptWebSocket(server);
    server.serializeAttachment(new URL(request.url).searchParams.get('name'));
    return new Response(null, { status: 101, webSocket: client });
  }
  webSocketMessage(socket, message) {
    const name = socket.deserializeAttachment();
    for (const other of this.ctx.getWebSockets()) other.send(name + ': ' + message);
  }
}
export default { fetch: (request, env) => env.ROOMS.getByName('one').fetch(request) };`;
/** Puts and reads in the Cache API. */
const CACHE = `export default { async fetch({ method, url }) {
  const key = new Request('http://cached.example/');
  if (method === 'PUT') await caches.default.put(key, new Response(url, { headers: { 'cache-control': 'max-age=60' } }));
  if (method === 'DELETE') return Response.json(await caches.default.delete(key));
  return new Response((await (await caches.default.match(key))?.text()) ?? 'miss');
} };`;

describe.skipIf(!clusterPrograms())('two nodes', () => {
  let cluster: Cluster;
  let nodes: TestHost[];
  let turn = 0;

  beforeAll(async () => {
    cluster = await Cluster.start();
    nodes = await Promise.all(['a', 'b'].map((name) => cluster.node(name)));
    const pay = x402Fetch(
      cluster.network,
      0,
      cluster.via(() => nodes[0] as TestHost),
    );
    const { outputFiles } = await build({ entryPoints: [HANDLER], bundle: true, write: false, format: 'esm' });
    const code = outputFiles[0]?.text ?? '';
    await deploy(pay, cluster.url, { slug: 'cases', code, bindings: { kv: true, r2: true } });
    await deploy(pay, cluster.url, { slug: 'work', code: CODE, bindings: BINDINGS });
    await deploy(pay, cluster.url, {
      slug: 'room',
      code: ROOM,
      bindings: { durableObjects: { ROOMS: { class: 'Room' } } },
    });
    await deploy(pay, cluster.url, { slug: 'cached', code: CACHE });
  });
  afterAll(() => cluster?.stop());

  /** By the nodes in turn. */
  const ask = (path: string, init?: RequestInit) => fetch(`${nodes[turn++ % nodes.length]?.url}${path}`, init);

  test.each(['kv', 'r2'] as const)(
    'every case of %s holds, while what one node writes the other reads',
    async (kind) => {
      let isRunning = true;
      let done = 0;
      const beside = nodes.map(async ({ url }, node) => {
        const other = nodes[1 - node]?.url;
        for (let at = 0; isRunning; at++, done++) {
          const key = `${kind}/put/beside-${node}-${at}`;
          const body = `by ${node}`;
          await fetch(`${url}/cases/${key}`, { method: 'PUT', body });
          const found = await fetch(`${other}/cases/${key.replace('put', 'get')}`);
          expect(await found.text()).toBe(body);
          await fetch(`${other}/cases/${key.replace('put', 'delete')}`);
        }
      });
      const failed: string[] = [];
      // What workerd itself does is asked of a binding that no host gives.
      for (const name of (await caseNames(kind)).filter((name) => !name.includes('workerd itself'))) {
        const answer = await (await ask(`/cases/case/${kind}/${encodeURIComponent(name)}`)).text();
        if (answer !== 'ok') failed.push(`${name}: ${answer}`);
      }
      isRunning = false;
      await Promise.all(beside);
      expect(failed).toEqual([]);
      expect(done).toBeGreaterThan(1);
    },
  );

  test('conditional changes of one object of R2 by both at once: none is lost', async () => {
    const counts = await Promise.all(
      Array.from({ length: COUNTS }, async () => Number(await (await ask('/cases/r2/count/counter')).text())),
    );
    expect(counts.sort((one, other) => one - other)).toEqual(Array.from({ length: COUNTS }, (_, at) => at + 1));
  });

  queuesAndWorkflowsSuite(workBy((path, init) => ask(`/work${path}`, init)));

  test('WebSockets of one object by both nodes hear each other', async () => {
    const heard: string[][] = [[], []];
    const sockets = nodes.map(({ url }, at) => {
      const socket = new WebSocket(`${url.replace('http', 'ws')}/room/?name=${at}`);
      socket.on('message', (text) => heard[at]?.push(String(text)));
      return socket;
    });
    await Promise.all(sockets.map((socket) => once(socket, 'open')));
    for (const [at, socket] of sockets.entries()) {
      socket.send(`hello ${at}`);
      await expect.poll(() => heard.map((all) => all.at(-1))).toEqual(Array(2).fill(`${at}: hello ${at}`));
    }
    for (const socket of sockets) socket.terminate();
  });

  test('what one node caches is no other node’s', async () => {
    // A node that a busy machine has kept from the others for too long serves nothing for a moment.
    const by = (at: number, method = 'GET') =>
      until(async () => {
        const text = await (await fetch(`${nodes[at]?.url}/cached/`, { method })).text();
        return text.includes('"not_ready"') ? undefined : text;
      });
    expect(await by(0)).toBe('miss');
    await by(0, 'PUT');
    expect(await by(0)).toMatch(/^http/);
    expect(await by(1)).toBe('miss');
    expect([await by(1, 'DELETE'), await by(0, 'DELETE'), await by(0)]).toEqual(['false', 'true', 'miss']);
  });
});
