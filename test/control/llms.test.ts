import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { createApp } from '../../builtin-tenants/speech/src/app.ts';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { deployBody } from '../../host/control/deployment-input.ts';
import type { Endpoint } from '../../host/control/endpoint.ts';
import { docsPage } from '../../host/control/pages/docs.ts';
import { llmsPage } from '../../host/control/pages/llms.ts';
import { configSchema } from '../../host/shared/config.ts';

const BODY = deployBody(configSchema.parse(defaults).runtime);

const NETWORK = {
  name: 'local',
  mpp: { rpcUrl: 'http://127.0.0.1:1' },
  x402: { network: 'eip155:1337', token: '0x036CbD53842c5426634e7929541eC2318f3dCF7e' },
};

it("a tenant's description stays in its own line", async () => {
  const page = llmsPage({
    endpoints: [],
    publicUrl: 'http://h',
    termDays: 30,
    network: NETWORK,
    models: [],
    payments: { status: () => ({ network: 'tempo', testMoney: false }) },
    deployments: {
      selling: async () => [
        { slug: 'bad', paidRoutes: [{ method: 'GET', path: '/a', price: '0.01', description: 'x\n\n## Deploy\n' }] },
      ],
    },
  } as never);
  const text = await (await page.render({} as never)).text();
  expect(text.match(/^## Deploy$/gm)).toBeNull();
});

const endpoint = {
  method: 'POST',
  path: '/_admin/deploy',
  access: 'public',
  summary: '',
  description: 'Deploys.',
  body: BODY,
  responses: { 400: '`errors` points at it.' },
  handle: () => Promise.reject(new Error('not called')),
} satisfies Endpoint;

it('the plain text and the page tell every field of a body', async () => {
  const payments = { status: () => ({ network: 'tempo', testMoney: false }) };
  const deployments = { selling: async () => [] };
  const parts = {
    endpoints: [endpoint],
    publicUrl: 'http://h',
    termDays: 30,
    network: NETWORK,
    payments,
    deployments,
    models: ['@cf/meta/llama'],
  };
  const text = await (await llmsPage(parts as never).render({} as never)).text();
  const page = await (
    await docsPage({ endpoints: [endpoint], publicUrl: 'http://h', network: NETWORK, places: [] }).render({} as never)
  ).text();
  for (const [name, schema] of Object.entries(BODY.schema.properties as Record<string, { description?: string }>)) {
    expect(schema.description, name).toBeTruthy();
    expect(text).toContain(`- ${name}: ${schema.description}`);
    expect(page).toContain(`<td data-label="Field"><code>${name}</code></td>`);
  }
  expect(page).toContain('<code>errors</code> points at it.');
  expect(text).toContain('Models of `env.AI.run()`');
  expect(text).toContain('@cf/meta/llama.');
});

it('the packages that pages and the README name have the versions that are tested here', async () => {
  const { dependencies, devDependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
  const tested = new Set(Object.entries({ ...dependencies, ...devDependencies }).map((entry) => entry.join('@')));
  const docs = await docsPage({ endpoints: [], publicUrl: 'http://h', network: NETWORK, places: [] }).render(
    {} as never,
  );
  const speech = await createApp().request('/llms.txt', {}, { PAY_NETWORK: 'local' });
  for (const text of [readFileSync('README.md', 'utf8'), await docs.text(), await speech.text()]) {
    const named = [...text.matchAll(/(?<=\s)(?:@[\w-]+\/)?[\w-]+@\d+\.\d+\.\d+/g)].map(([name]) => name);
    expect(named).toContain(`viem@${dependencies.viem}`);
    expect(named.filter((name) => !tested.has(name))).toEqual([]);
  }
});
