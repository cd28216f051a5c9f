/** What an indexer that knows one address finds: every paid path, with a 402 that x402's own check takes. */
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { extractDiscoveryInfo } from '@x402/extensions/bazaar';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

const INPUT = {
  query: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  example: { query: { city: 'Rome' } },
};
let host: TestHost;

beforeAll(async () => {
  host = await startHost({ builtins: ['speech', 'pay', 'deals'] });
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'weather',
    code: 'export default { fetch: () => new Response(null, { status: 404 }) }',
    paidRoutes: [
      { method: 'GET', path: '/now', price: '0.01', input: INPUT, output: { example: { warm: true } } },
      { path: '/any/*', price: '0.02', mode: 'metered' },
      { path: '/quiet', price: '0.03', listed: false },
    ],
  });
  await until(async () => (await fetch(`${host.url}/pay/deals/v1/rules`)).status === 402);
});
afterAll(() => host?.stop());

const listed = async (place: string) => {
  const answer = await fetch(`${host.url}${place}/.well-known/x402`);
  expect(answer.headers.get('content-type')).toContain('application/json');
  return (await answer.json()) as { version: number; resources: string[] };
};

/** As scanners do: each method without anything, until one is asked to pay. */
async function probe(url: string) {
  for (const method of ['GET', 'POST']) {
    const answer = await fetch(url, { method });
    const header = answer.headers.get('payment-required');
    if (answer.status !== 402 || header === null) continue;
    const required = decodePaymentRequiredHeader(header);
    const payload = { x402Version: 2, resource: required.resource, extensions: required.extensions } as never;
    return extractDiscoveryInfo(payload, required.accepts[0] as never);
  }
  return undefined;
}

test('the host names everything that is for sale, and each asks to be paid with a description that is taken', async () => {
  const { version, resources } = await listed('');
  expect(version).toBe(1);
  expect(resources.map((url) => new URL(url).pathname).sort()).toEqual([
    '/_admin/deploy',
    '/_admin/renew/hello',
    '/pay/deals/v1/deals',
    '/pay/deals/v1/rules',
    '/speech/v1/listen',
    '/speech/v1/read',
    '/speech/v1/speak',
    '/weather/any/hello',
    '/weather/now',
  ]);
  for (const url of resources) {
    const found = await probe(url);
    expect(found, url).toMatchObject({ discoveryInfo: { input: { type: 'http' } } });
  }
  expect(await probe(`${host.url}/weather/now`)).toMatchObject({
    method: 'GET',
    discoveryInfo: { input: { queryParams: { city: 'Rome' } }, output: { example: { warm: true } } },
  });
  expect(await probe(`${host.url}/pay/deals/v1/deals`)).toMatchObject({
    discoveryInfo: { input: { queryParams: { currency: 'EUR' } } },
  });
});

test('each built-in tenant names what it sells, also behind the gateway', async () => {
  const named = async (place: string) => (await listed(place)).resources.map((url) => new URL(url).pathname);
  expect(await named('/speech')).toHaveLength(3);
  for (const place of ['/deals', '/pay/deals'])
    expect((await named(place)).sort(), place).toEqual(['/pay/deals/v1/deals', '/pay/deals/v1/rules']);
  expect(await named('/pay')).toContain('/pay/deals/v1/deals');
});

test('an empty call is asked to pay, whatever stands for a part of the path', async () => {
  for (const part of [':id', '{id}', '%7Bid%7D', '[id]', '1', '']) {
    const { status } = await fetch(`${host.url}/weather/any/${part}`);
    expect(status, part).toBe(402);
  }
  for (const slug of [':slug', '{slug}', 'hello'])
    expect((await fetch(`${host.url}/_admin/renew/${slug}`, { method: 'POST' })).status, slug).toBe(402);
  // Sold for credit only, so that no x402 client is led to it.
  expect((await fetch(`${host.url}/pay/deals/v1/watches`, { method: 'POST' })).status).toBe(402);
});

test('a deployment names what it sells itself, as do its OpenAPI and the command', async () => {
  const { resources } = await listed('/weather');
  expect(resources.sort()).toEqual(
    ['/any/hello', '/now', '/quiet'].map((path) => `http://localhost:${host.port}/weather${path}`),
  );
  const document = (await (await fetch(`${host.url}/weather/openapi.json`)).json()) as {
    paths: Record<string, Record<string, object>>;
  };
  expect(document.paths['/now']?.get).toMatchObject({
    parameters: [{ name: 'city', in: 'query', required: true }],
    'x-payment-info': { protocols: ['mpp', 'x402'], price: { mode: 'fixed', currency: 'USD', amount: '0.01' } },
  });
  expect(document.paths['/any/{rest}']?.post).toMatchObject({
    'x-payment-info': { price: { mode: 'dynamic', max: '0.02' } },
  });
  const shown = await turnpike(['list', '--for-sale', '--json', '--host-url', host.url, '--data', host.data], {
    cwd: host.data,
  });
  expect(shown.json().forSale).toHaveLength(3);
  expect(shown.json().forSale[0]).toMatchObject({ method: 'GET', mode: 'fixed' });
  expect(shown).toMatchObject({ code: 0 });
});
