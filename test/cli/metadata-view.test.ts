import { expect, it } from 'vitest';
import { type Metadata, metadataText } from '../../host/cli/metadata-view.ts';

it.each([
  ['expired', true],
  ['active', false],
])('what is %s: whether it says that only a renewal brings it back', (state, told) => {
  const metadata = { slug: 'hello', state, bindings: {}, crons: [], domains: [], paidRoutes: [], runtime: {} };
  expect(metadataText(metadata as unknown as Metadata).includes('402 until it is renewed: turnpike renew hello')).toBe(
    told,
  );
});

it('bindings are shown with the names that they were given', () => {
  const bindings = { kv: { CACHE: {}, SESSIONS: { id: 's' } }, d1: true, r2: false };
  const metadata = { slug: 'hello', bindings, crons: [], domains: [], paidRoutes: [], runtime: {} };
  expect(metadataText(metadata as unknown as Metadata)).toMatch(/bindings +kv \(CACHE SESSIONS\) d1\n/);
});
