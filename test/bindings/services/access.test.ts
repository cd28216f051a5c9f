import { describe, expect, test } from 'vitest';
import { bindingSet, bindingsSchema } from '../../../host/bindings/index.ts';
import { calledBy, mayCall, ownEntrypoints } from '../../../host/bindings/services/access.ts';

const OWNER = `0x${'a'.repeat(40)}`;
const OTHER = `0x${'b'.repeat(40)}`;
const shop = { slug: 'shop', owner: OTHER };
const callee = (services: object) => ({
  slug: 'auth',
  owner: OWNER,
  bindings: bindingSet(bindingsSchema.parse({ services })),
});

describe('who may call', () => {
  test('deployments of one owner, whatever is opened', () => {
    expect(mayCall({ slug: 'any', owner: OWNER }, callee({}), 'Admin')).toBe(true);
  });

  test.each([
    [{}, undefined, false],
    [{ A: { open: [OTHER] } }, undefined, true],
    [{ A: { open: [OTHER.toUpperCase().replace('X', 'x')] } }, undefined, true],
    [{ A: { open: [`${OTHER}/shop`] } }, undefined, true],
    [{ A: { open: [`${OTHER}/shop2`] } }, undefined, false],
    [{ A: { open: [`${OWNER}/shop`] } }, undefined, false],
    [{ A: { open: [] } }, undefined, false],
    [{ A: { open: [OTHER] } }, 'Admin', false],
    [{ A: { open: [OTHER], entrypoint: 'Admin' } }, 'Admin', true],
    [{ A: { open: [OTHER], entrypoint: 'Admin' } }, undefined, false],
    [{ A: { service: 'shop' } }, undefined, false],
  ])('%j opens %s to another owner: %s', (services, entrypoint, may) => {
    expect(mayCall(shop, callee(services), entrypoint)).toBe(may);
  });
});

test('what is called, and what the code has to export', () => {
  const { bindings } = callee({
    A: { service: 'shop' },
    B: { service: 'shop', entrypoint: 'Api' },
    C: { entrypoint: 'Own' },
    D: { entrypoint: 'Own', open: [OTHER] },
  });
  expect(calledBy(bindings)).toEqual([
    { name: 'A', service: 'shop', entrypoint: undefined },
    { name: 'B', service: 'shop', entrypoint: 'Api' },
  ]);
  expect(ownEntrypoints(bindings)).toEqual(['Own']);
});

test.each([
  [{ service: 'NO' }, /no slug/],
  [{ service: 'shop', props: {} }, /for entrypoints of the deployment itself/],
  [{ service: 'shop', open: [] }, /opens an entrypoint of the deployment itself/],
  [{ open: ['shop'] }, /takes wallets/],
  [{ entrypoint: 'a-b' }, /invalid name of an entrypoint/],
])('%j is refused', (settings, told) => {
  expect(() => bindingsSchema.parse({ services: { A: settings } })).toThrow(told);
});
