/** Proofs of ownership by stock clients, and what others do with them: relays, other requests, tenants of the same host. */
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { deploy, type Fetch, jsonPost, mppFetch, signInFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';

/** Shows what it is told to, and says what it was sent. */
const SHOWS = `
export default {
  fetch(request) {
    const { searchParams } = new URL(request.url);
    const sent = [...request.headers].filter(([name]) => /^authorization$|sign-in|payment/.test(name));
    if (sent.length > 0) return Response.json({ sent });
    return new Response('{}', { status: 402, headers: JSON.parse(searchParams.get('show') ?? '{}') });
  },
};`;
let host: TestHost;
let url: string;

beforeAll(async () => {
  host = await startHost();
  // The name in its public URL: what clients sign has to name the host that they called.
  url = `http://localhost:${host.port}`;
  await deploy(mppFetch(host.network, 0), host.url, { slug: 'mine', code: SHOWS });
  await deploy(mppFetch(host.network, 1), host.url, { slug: 'theirs', code: SHOWS });
});
afterAll(() => host?.stop());

const challenge = async (method: string, path: string, body?: string) =>
  Object.fromEntries(
    [...(await fetch(url + path, { method, ...(body ? { body } : {}) })).headers].filter(([name]) =>
      ['www-authenticate', 'payment-required'].includes(name),
    ),
  );
const lives = async () => expect((await fetch(`${url}/mine/`)).status).toBe(402);

/** A client that keeps what it sent, and may be made to send its first proof with something else. */
function recording(make: (sender: typeof fetch) => Fetch, change?: (request: Request) => Request) {
  const proofs: Record<string, string>[] = [];
  const statuses: number[] = [];
  const sender = async (input: string | URL | Request, init?: RequestInit) => {
    const request = new Request(input, init);
    const proof = [...request.headers].filter(([name]) => name === 'authorization' || name === 'sign-in-with-x');
    if (proof.length === 0) return await fetch(request);
    proofs.push(Object.fromEntries(proof));
    // mppx answers the challenge of a refusal, too.
    if (change && proofs.length > 1) throw new Error('one proof is enough');
    const answer = await fetch(change ? change(request) : request);
    statuses.push(answer.status);
    return answer;
  };
  return { proofs, statuses, fetch: make(sender as typeof fetch) };
}
const clients = {
  mppx: (sender: typeof fetch) => mppFetch(host.network, 0, sender),
  'sign-in-with-x': (sender: typeof fetch) => signInFetch(host.network, 0, sender),
};

test.each(Object.entries(clients))('a proof by %s is good for one request, once', async (_name, make) => {
  const owner = recording(make);
  expect((await owner.fetch(`${url}/_admin/mine/usage?days=2`)).status).toBe(200);
  const [headers] = owner.proofs;
  const shown = async (method: string, path: string) =>
    (await fetch(url + path, { method, ...(headers ? { headers } : {}) })).status;
  expect(await shown('GET', '/_admin/mine/usage?days=2')).toBe(402);
  expect(await shown('GET', '/_admin/mine/secrets')).toBe(402);
  expect(await shown('DELETE', '/_admin/mine')).toBe(402);
  expect((await owner.fetch(`${url}/_admin/theirs/usage`)).status).toBe(403);
  await lives();
});

test.each(Object.entries(clients))(
  'a proof by %s that was not used is not good for another request',
  async (_name, make) => {
    const until = new Date(Date.now() + 60_000).toISOString();
    const text = (name: string) => JSON.stringify({ slugs: ['mine'], actions: ['update'], until, name });
    const to = (method: string, path: string, body?: string) => (request: Request) =>
      new Request(url + path, { method, headers: request.headers, ...(body ? { body } : {}) });
    const changes = {
      body: to('POST', '/_admin/keys', text('b')),
      path: to('POST', '/_admin/keys?more=1', text('a')),
      method: to('DELETE', '/_admin/mine'),
    };
    for (const [what, change] of Object.entries(changes)) {
      const owner = recording(make, change);
      await owner.fetch(`${url}/_admin/keys`, jsonPost(JSON.parse(text('a')))).catch(() => undefined);
      expect(owner.statuses, what).toEqual([402]);
    }
    const owner = recording(make);
    expect((await owner.fetch(`${url}/_admin/keys`, jsonPost(JSON.parse(text('a'))))).status).toBe(201);
    await lives();
  },
);

test('sign-in-with-x: a relay on another server gets no signature', async () => {
  const seen: string[] = [];
  const relay = createServer(async (request, response) => {
    seen.push(JSON.stringify(request.headers));
    const forwarded = await fetch(`${url}/_admin/mine`, {
      method: 'DELETE',
      headers: Object.entries(request.headers).filter(([name]) => name === 'sign-in-with-x') as [string, string][],
    });
    response.writeHead(forwarded.status, { 'payment-required': forwarded.headers.get('payment-required') ?? '' });
    response.end(await forwarded.text());
  });
  await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', resolve));
  try {
    const answer = signInFetch(host.network, 0)(`http://127.0.0.1:${(relay.address() as AddressInfo).port}/`);
    await expect(answer).rejects.toThrow();
    expect(seen).toHaveLength(1);
    // The same client, asked by the host itself, signs: the test would see it.
    expect((await signInFetch(host.network, 0)(`${url}/_admin/mine/usage`)).status).toBe(200);
  } finally {
    relay.close();
  }
  await lives();
});

test('sign-in-with-x: a server that redirects to the host cannot use what its caller signed then', async () => {
  const place = `${url}/_admin/session/mine`;
  const body = 'anything';
  const proofs: string[] = [];
  const redirecting = createServer((request, response) => {
    const proof = request.headers['sign-in-with-x'];
    request.resume();
    if (typeof proof === 'string') proofs.push(proof);
    // The client follows, is asked by the host itself, and shows its answer to the one that it had called.
    response.writeHead(proof === undefined ? 307 : 200, { location: place }).end();
  });
  await new Promise<void>((resolve) => redirecting.listen(0, '127.0.0.1', resolve));
  const { port } = redirecting.address() as AddressInfo;
  await signInFetch(host.network, 0)(`http://127.0.0.1:${port}/`, { method: 'POST', body });
  redirecting.close();
  expect(proofs).toHaveLength(1);
  /** @param localAddress from which the host is asked */
  const asked = (localAddress: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      const headers = { 'sign-in-with-x': proofs[0], 'content-length': body.length };
      const sent = httpRequest(place, { method: 'POST', headers, localAddress, family: 4 }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      });
      sent.once('error', reject);
      sent.end(body);
    });
  expect(await asked('127.0.0.2')).toBe(402);
  // From where it was signed it would count: nothing else was wrong with it.
  expect(await asked('127.0.0.1')).toBe(201);
});

test('a tenant of the host cannot show the host’s own challenges, and can show those of others', async () => {
  for (const asked of [await challenge('DELETE', '/_admin/mine'), await challenge('POST', '/_admin/deploy', '{}')]) {
    expect(Object.keys(asked).sort()).toEqual(['payment-required', 'www-authenticate']);
    const place = `${url}/theirs/?show=${encodeURIComponent(JSON.stringify(asked))}`;
    const shown = await fetch(place);
    expect([shown.status, shown.headers.get('www-authenticate')]).toEqual([402, null]);
    for (const make of Object.values(clients)) {
      const owner = recording(make);
      await owner.fetch(place).catch(() => undefined);
      expect(owner.proofs).toEqual([]);
    }
  }
  const others = { 'www-authenticate': 'Bearer realm="elsewhere"' };
  const shown = await fetch(`${url}/theirs/?show=${encodeURIComponent(JSON.stringify(others))}`);
  expect(shown.headers.get('www-authenticate')).toBe(others['www-authenticate']);
});
