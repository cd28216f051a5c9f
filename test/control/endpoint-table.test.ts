import { expect, it } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { bodyFields } from '../../host/control/endpoint.ts';
import { endpointTable } from '../../host/control/routes.ts';
import { configSchema } from '../../host/shared/config.ts';

it('each field of each body has a description, which the pages print', () => {
  const parts = {
    config: configSchema.parse(defaults),
    publicUrl: 'http://h',
    payments: { registerCompletion: () => undefined },
  };
  const fields = endpointTable(parts as never, undefined as never, undefined as never, undefined as never).flatMap(
    (endpoint) => bodyFields(endpoint).map((field) => ({ of: `${endpoint.method} ${endpoint.path}`, ...field })),
  );
  expect(fields.map(({ name }) => name)).toEqual(expect.arrayContaining(['slug', 'version', 'domain']));
  expect(fields.filter(({ description }) => description === '')).toEqual([]);
});
