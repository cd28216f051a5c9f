/** What deployments keep on a host of two nodes, over a real PostgreSQL and a real S3: kept at one, found at the other. */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPut, signInFetch, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import { type TestHost, until } from './support/host.ts';

const LARGE = 'large '.repeat(50_000);
const STORE = `export default {
  async fetch(request, env) {
    const [, kind, key] = new URL(request.url).pathname.split('/');
    const store = kind === 'kv' ? env.STORE : env.BUCKET;
    if (request.method === 'PUT') {
      await store.put(key, await request.text());
      return new Response('kept');
    }
    const found = await store.get(key);
    return new Response(found === null ? 'none' : typeof found === 'string' ? found : await found.text());
  },
}`;
const SITE = 'export default { fetch: () => new Response("by the instance") }';

describe.skipIf(!clusterPrograms())('two nodes', () => {
  let cluster: Cluster;
  let a: TestHost;
  let b: TestHost;
  let pay: Fetch;
  let prove: Fetch;

  beforeAll(async () => {
    cluster = await Cluster.start();
    [a, b] = await Promise.all([cluster.node('a'), cluster.node('b')]);
    pay = x402Fetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
    prove = signInFetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
  });
  afterAll(() => cluster?.stop());

  const text = async (host: TestHost, path: string) => (await fetch(`${host.url}${path}`)).text();
  const put = async (host: TestHost, path: string, body: string) =>
    (await fetch(`${host.url}${path}`, { method: 'PUT', body })).text();

  it('KV and R2: what one has answered the other has, and a node that is killed takes nothing along', async () => {
    await deploy(pay, cluster.url, { slug: 'keeps', code: STORE, bindings: { kv: true, r2: true } });
    for (const kind of ['kv', 'r2']) {
      expect(await put(a, `/keeps/${kind}/small`, `small of ${kind}`)).toBe('kept');
      expect(await put(a, `/keeps/${kind}/large`, LARGE)).toBe('kept');
      expect(await text(b, `/keeps/${kind}/small`)).toBe(`small of ${kind}`);
      expect(await text(b, `/keeps/${kind}/large`)).toBe(LARGE);
      expect(await put(b, `/keeps/${kind}/small`, 'by b')).toBe('kept');
      expect(await text(a, `/keeps/${kind}/small`)).toBe('by b');
    }
    await put(a, '/keeps/kv/last', 'before the end');
    await a.kill();
    expect(await text(b, '/keeps/kv/last')).toBe('before the end');
    expect(await put(b, '/keeps/r2/large', 'after')).toBe('kept');
    a = await a.restart();
    cluster.nodes.push(a);
    expect(await text(a, '/keeps/r2/large')).toBe('after');
  });

  it('static files that were sent to one are served by the edge of the other, also when the one is gone', async () => {
    await deploy(pay, cluster.url, { slug: 'site', code: SITE });
    const session = await prove(`${cluster.url}/_admin/session/site`, { method: 'POST' });
    const headers = { authorization: `Bearer ${((await session.json()) as { token: string }).token}` };
    const page = '<h1>kept at A</h1>';
    const hash = createHash('sha256').update(page).digest('hex');
    const sent = await fetch(`${a.url}/_admin/site/assets/${hash}`, { method: 'PUT', body: page, headers });
    expect(sent.status, await sent.text()).toBe(201);
    const updated = await prove(
      `${cluster.url}/_admin/code/site`,
      jsonPut({ assets: { files: { '/page.html': hash } } }),
    );
    expect(updated.status, await updated.text()).toBe(200);
    await a.kill();
    // Edges name the content by its digest; instances do not.
    const found = await until(async () => {
      const answer = await fetch(`${b.url}/site/page`);
      expect(await answer.text()).toBe(page);
      return answer.headers.get('etag') === `"${hash}"` ? answer : undefined;
    });
    expect(found.status).toBe(200);
    expect(await text(b, '/site/other')).toBe('by the instance');
    a = await a.restart();
    cluster.nodes.push(a);
    expect(await text(a, '/site/page')).toBe(page);
  });

  it('what is in the folder of one node is refused before it is paid, with the reason', async () => {
    await expect(deploy(pay, cluster.url, { slug: 'refused', code: SITE, bindings: { d1: true } })).rejects.toThrow(
      /keeps data on one node/,
    );
  });
});
