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
