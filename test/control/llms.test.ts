import { expect, it } from 'vitest';
import type { Endpoint } from '../../host/control/endpoint.ts';
import { docsPage } from '../../host/control/pages/docs.ts';
import { llmsPage } from '../../host/control/pages/llms.ts';
import { deployBodySchema } from '../../host/control/schemas.ts';

it("a tenant's description stays in its own line", async () => {
  const page = llmsPage({
    endpoints: [],
    publicUrl: 'http://h',
    termDays: 30,
    localRpcUrl: undefined,
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
  body: { schema: deployBodySchema, required: true },
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
    localRpcUrl: undefined,
    payments,
    deployments,
  };
  const text = await (await llmsPage(parts as never).render({} as never)).text();
  const page = await (await docsPage([endpoint], 'http://h').render({} as never)).text();
  for (const [name, schema] of Object.entries(
    deployBodySchema.properties as Record<string, { description?: string }>,
  )) {
    expect(schema.description, name).toBeTruthy();
    expect(text).toContain(`- ${name}: ${schema.description}`);
    expect(page).toContain(`<td><code>${name}</code></td>`);
  }
  expect(page).toContain('<code>errors</code> points at it.');
});
