import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { prepareSchema } from '../../host/capnp/prepare-schema.ts';

it('the generated code is made from the schema of the installed workerd', () => {
  const installed = join(dirname(createRequire(import.meta.url).resolve('workerd/package.json')), 'workerd.capnp');
  const committed = join(import.meta.dirname, '../../host/capnp/generated/workerd.capnp');
  expect(
    prepareSchema(readFileSync(installed, 'utf8')) === readFileSync(committed, 'utf8'),
    'workerd was upgraded: run node scripts/generate-workerd-schema.ts',
  ).toBe(true);
});
