import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { bundleDemo, OUTPUT } from '../../../builtin-tenants/speech/demo/build.ts';
import { createApp } from '../../../builtin-tenants/speech/src/app.ts';
import type { Env } from '../../../builtin-tenants/speech/src/settings.ts';

const app = createApp();
const OFFERS = JSON.stringify([
  { intent: 'charge', method: 'tempo', currency: '0x20c0' },
  { intent: 'upto', method: 'x402', currency: 'eip155:1337/0xabc', mode: 'metered' },
]);
const ENV: Env = {
  APP_URL: 'https://api.example.com',
  PAY_TO: '0x00000000000000000000000000000000000000aa',
  PAY_NETWORK: 'tempo',
  PAY_OFFERS: OFFERS,
};
const KEY = `0x${'12'.repeat(32)}`;

async function get(path: string, env: Env = ENV): Promise<Response> {
  return await app.request(path, {}, env);
}

describe('the descriptor', () => {
  it('has every sku, price and pricing version, for both protocols', async () => {
    const body = (await (await get('/.well-known/paywrap.json')).json()) as { paidRoutes: Record<string, unknown>[] };
    expect(body).toMatchObject({ service: 'speech', version: '1.0', wallet: ENV.PAY_TO, network: 'tempo' });
    const rows = body.paidRoutes.map((route) => [
      route.path,
      route.sku,
      route.priceUsdcMicro,
      route.pricingVersion,
      route.protocol,
    ]);
    for (const protocol of ['mpp', 'x402']) {
      expect(rows).toContainEqual(['/v1/listen', 'speech-listen:v1', 50_000, 1, protocol]);
      expect(rows).toContainEqual(['/v1/speak', 'speech-speak:v1', 50_000, 1, protocol]);
      expect(rows).toContainEqual(['/v1/listen', 'speech-listen-live:v1', 50_000, 1, protocol]);
      expect(rows).toContainEqual(['/v1/speak', 'speech-speak-live:v1', 50_000, 1, protocol]);
      expect(rows).toContainEqual(['/v1/read', 'speech-read:v1', 5000, 1, protocol]);
    }
    expect(body.paidRoutes).toHaveLength(10);
  });
});

describe('the OpenAPI document', () => {
  it('carries the payment of each operation, ours and the standard one', async () => {
    const body = (await (await get('/openapi.json')).json()) as {
      info: { version: string };
      servers: { url: string }[];
      paths: Record<string, { post: Record<string, unknown> & { responses: object } }>;
    };
    expect(body.info.version).toBe('1.0');
    expect(body.servers).toEqual([{ url: 'https://api.example.com/speech' }]);
    const listen = body.paths['/v1/listen']?.post;
    expect(listen?.['x-payment']).toEqual({
      method: 'tempo',
      currency: 'USDC',
      amount: '0.05',
      sku: 'speech-listen:v1',
      pricingVersion: 1,
    });
    expect(listen?.['x-payment-info']).toMatchObject({
      offers: [
        { intent: 'charge', method: 'tempo', amount: '50000', sku: 'speech-listen:v1' },
        { intent: 'upto', method: 'x402' },
      ],
    });
    expect(body.paths['/v1/read']?.post['x-payment-info']).toMatchObject({
      offers: [{ intent: 'charge', amount: '5000' }],
    });
    for (const path of ['/v1/listen', '/v1/speak', '/v1/read'])
      expect(body.paths[path]?.post.responses).toHaveProperty('402');
  });
});

describe('pages', () => {
  it('name the address that the operator set', async () => {
    expect(await (await get('/llms.txt')).text()).toContain('https://api.example.com/speech/v1/listen');
    expect(await (await get('/docs')).text()).toContain('<h1>Speech</h1>');
  });

  it('show the demo wallet on the local network, and nowhere else', async () => {
    const local = await (await get('/', { ...ENV, PAY_NETWORK: 'local', DEMO_WALLET_KEY: KEY })).text();
    expect(local).toContain(KEY);
    expect(local).toContain('Play money');
    for (const network of ['tempo', 'tempo-testnet', 'base', '', 'none']) {
      const page = await get('/', { ...ENV, PAY_NETWORK: network, DEMO_WALLET_KEY: KEY });
      const text = await page.text();
      expect(text, network).not.toContain(KEY);
      expect(text, network).not.toContain('<script');
    }
  });

  it('let nothing but their own script run', async () => {
    const policy = (await get('/')).headers.get('content-security-policy') ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self'");
  });

  it('serve the demo script that its sources make', async () => {
    expect(readFileSync(OUTPUT, 'utf8')).toBe(await bundleDemo());
  });

  it('say degraded and how to mend it where no engine runs', async () => {
    const body = await (await get('/healthz', { ...ENV, SPEECH_ENGINE_URL: 'http://127.0.0.1:9' })).json();
    expect(body).toMatchObject({
      status: 'degraded',
      engines: { speak: { ok: false, fix: expect.stringContaining('speech.engine') } },
    });
  });
});

describe('errors', () => {
  it.each([
    ['GET', '/v1/listen', 405, 'METHOD_NOT_ALLOWED'],
    ['GET', '/nothing', 404, 'NOT_FOUND'],
    ['POST', '/v1/listen?punctuate=perhaps', 400, 'INVALID_QUERY_PARAMETER'],
    ['POST', '/v1/listen', 400, 'INVALID_BODY'],
    ['POST', '/v1/speak', 400, 'INVALID_BODY'],
    ['POST', '/v1/read?topics=true', 400, 'INVALID_BODY'],
  ])('%s %s is %i %s in Deepgram’s shape, uncharged', async (method, path, status, code) => {
    const response = await app.request(path, { method, headers: { 'x-request-id': 'request-4711' } }, ENV);
    expect(response.status).toBe(status);
    expect(response.headers.get('x-charge')).toBeNull();
    expect(response.headers.get('x-request-id')).toBe('request-4711');
    expect(await response.json()).toEqual({ err_code: code, err_msg: expect.any(String), request_id: 'request-4711' });
  });

  it('refuse a text over 2,000 characters, and one that costs more than is held', async () => {
    const speak = (text: string, held?: string) =>
      app.request(
        '/v1/speak',
        {
          method: 'POST',
          body: JSON.stringify({ text }),
          headers: { 'content-type': 'application/json', ...(held === undefined ? {} : { 'x-max-price': held }) },
        },
        ENV,
      );
    expect((await speak('😀'.repeat(2001))).status).toBe(413);
    const dear = await speak('x'.repeat(100), '0.002499');
    expect(dear.status).toBe(402);
    expect(await dear.json()).toMatchObject({
      err_code: 'PAYMENT_LIMIT_EXCEEDED',
      needed_usd: '0.0025',
      held_usd: '0.002499',
    });
  });
});

it('the commands of the guide use options that they have', async () => {
  const guide = await (await get('/llms.txt')).text();
  expect(guide).toMatch(/^turnpike pay '\S+' --body /m);
  expect(guide).toMatch(/^npx .* mppx .* -H 'accept: audio\/mpeg' > hello\.mp3$/m);
});

it('the page says without JavaScript that it needs it', async () => {
  expect(await (await get('/', { ...ENV, PAY_NETWORK: 'local', DEMO_WALLET_KEY: KEY })).text()).toContain('<noscript>');
});
