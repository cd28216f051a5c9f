import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it, vi } from 'vitest';
import { deliverStored } from '../../../builtin-tenants/speech/src/callback.ts';
import { readSettings, type Store } from '../../../builtin-tenants/speech/src/settings.ts';

afterEach(() => vi.unstubAllGlobals());

/** As KV: pages in the order of names. */
function storeOf(values: Map<string, string>, pageSize: number): Store {
  return {
    get: async (key) => values.get(key) ?? null,
    put: async (key, value) => void values.set(key, value),
    delete: async (key) => void values.delete(key),
    list: async ({ prefix, cursor = '' }) => {
      const names = [...values.keys()].filter((name) => name.startsWith(prefix) && name > cursor).sort();
      const keys = names.slice(0, pageSize).map((name) => ({ name }));
      return { keys, ...(names.length > pageSize ? { cursor: keys.at(-1)?.name ?? '' } : {}) };
    },
  };
}

it('answers whose receivers are gone keep no other from being delivered', async () => {
  const received: string[] = [];
  const server = createServer((request, reply) => {
    received.push(String(request.headers['dg-request-id']));
    reply.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const good = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const gone = 'http://gone.test/';
  const real = fetch;
  vi.stubGlobal('fetch', (url: string, init: RequestInit) =>
    url === gone ? Promise.reject(new Error('gone')) : real(url, init),
  );
  const stored = (url: string, requestId: string) =>
    JSON.stringify({ url, method: 'POST', requestId, contentType: 'text/plain', body: '', notBefore: 0 });
  const values = new Map(
    Array.from({ length: 150 }, (_, index) => [`callback:${1_000 + index}`, stored(gone, String(index))]),
  );
  values.set('callback:9999', stored(good, 'good'));
  const settings = readSettings({});
  // Each run reaches it with two chances in three.
  for (let run = 0; run < 60 && received.length === 0; run++) await deliverStored(storeOf(values, 40), settings);
  server.close();
  expect(received).toEqual(['good']);
  expect(values.size).toBe(150);
});
