/** The R2 suite on the embedded disk. test/s3 runs the same on S3. */
import { afterAll, beforeAll, describe } from 'vitest';
import { r2Suite } from './r2-suite.ts';
import { streamsInFlatMemory } from './storage-memory.ts';
import { StorageRig } from './storage-rig.ts';

describe('R2 on disk', () => r2Suite(async () => ({ objects: { kind: 'disk' } })));

describe('large objects on disk', () => {
  let rig: StorageRig;
  beforeAll(async () => {
    rig = await StorageRig.start();
  });
  afterAll(() => rig?.stop());

  streamsInFlatMemory(() => rig);
});
