/** What the pages say of the real endpoint table. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { html } from '../../builtin-tenants/kit/look/layout.ts';
import { bodyFields } from '../../host/control/endpoint.ts';
import { docsPage } from '../../host/control/pages/docs.ts';
import { callsOf, EXAMPLES } from '../../host/control/pages/examples.ts';
import { llmsPage } from '../../host/control/pages/llms.ts';
import { openApiDocument } from '../../host/control/pages/openapi.ts';
import { endpointTable } from '../../host/control/routes.ts';

const payments = {
  registerCompletion() {},
  offers: () => [],
  status: () => ({ network: 'tempo', testMoney: false }),
};
const config = JSON.parse(readFileSync('config/turnpike.default.json', 'utf8'));
const endpoints = endpointTable(
  { config, payments, publicUrl: 'http://h' } as never,
  {} as never,
  {} as never,
  {} as never,
);
const parts = {
  endpoints,
  payments,
  publicUrl: 'http://h',
  version: '1',
  termDays: 30,
  network: { name: 'tempo' },
  models: [],
};

it('endpoints without a body are printed without one', async () => {
  const deployments = { selling: async () => [] };
  const text = await (await llmsPage({ ...parts, deployments } as never).render({} as never)).text();
  for (const endpoint of endpoints) {
    const section = text.split('### ').find((part) => part.startsWith(`${endpoint.method} ${endpoint.path} `));
    expect(/ -[Jd] /.test(section ?? ''), endpoint.path).toBe(bodyFields(endpoint).length > 0);
  }
});

it('the docs have an example of every endpoint in each language, and of nothing else', async () => {
  const page = await (await docsPage({ ...parts, places: [] } as never).render({} as never)).text();
  expect(Object.keys(EXAMPLES).sort()).toEqual(endpoints.map(({ method, path }) => `${method} ${path}`).sort());
  for (const endpoint of endpoints) {
    const example = EXAMPLES[`${endpoint.method} ${endpoint.path}`];
    if (!example) throw new Error('unreachable');
    expect(bodyFields(endpoint).length > 0, endpoint.path).toBe(
      Object.keys(example.body ?? {}).some((name) => bodyFields(endpoint).some((field) => field.name === name)),
    );
    const calls = callsOf(endpoint, example, 'http://h');
    expect(calls.map(({ name }) => name)).toEqual(['curl', 'JavaScript', 'Python', 'turnpike']);
    for (const { text } of calls) expect(text).not.toMatch(/undefined|:\w+\/|\/:/);
    expect(page).toContain(String(html`${example.command}`));
  }
});

it('every operation says how a caller shows who pays or owns', () => {
  const document = openApiDocument(parts as never) as unknown as {
    paths: Record<string, Record<string, { security?: Record<string, unknown>[] }>>;
    components: { securitySchemes: Record<string, unknown> };
  };
  const schemes = Object.keys(document.components.securitySchemes);
  for (const { method, path, access, keyActions } of endpoints) {
    const security = document.paths[path.replace(/:(\w+)/g, '{$1}')]?.[method.toLowerCase()]?.security;
    expect(security?.length, `${method} ${path}`).toBe(
      { public: 0, paid: 1, owner: keyActions ? 3 : 2, operator: undefined }[access],
    );
    for (const one of security ?? []) expect(schemes).toContain(Object.keys(one)[0]);
  }
});
