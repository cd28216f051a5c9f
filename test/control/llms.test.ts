import { expect, it } from 'vitest';
import { llmsPage } from '../../host/control/pages/llms.ts';

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
