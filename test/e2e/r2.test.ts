/** The R2 suite on the embedded disk. test/s3 runs the same on S3. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { r2Suite } from './r2-suite.ts';
import { streamsInFlatMemory } from './storage-memory.ts';
import { StorageRig } from './storage-rig.ts';

describe('R2 on disk', () => r2Suite(async () => ({ objects: { kind: 'disk' } })));

describe.each(['2021-11-03', '2026-11-01'])('R2 for a handler of %s', (compatibilityDate) => {
  let rig: StorageRig;
  beforeAll(async () => {
    rig = await StorageRig.start({ compatibilityDate });
  });
  afterAll(() => rig?.stop());

  test.each(['a get without options is as workerd itself gives it', 'a get is refused as workerd itself refuses it'])(
    '%s',
    async (name) => {
      const response = await rig.fetch(`/case/r2/${encodeURIComponent(name)}`);
      expect(await response.text()).toBe('ok');
    },
  );
});

describe('large objects on disk', () => {
  let rig: StorageRig;
  beforeAll(async () => {
    rig = await StorageRig.start();
  });
  afterAll(() => rig?.stop());

  streamsInFlatMemory(() => rig);
});
