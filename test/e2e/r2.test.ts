/** The R2 suite on the embedded disk, and what the socket answers by itself. test/s3 runs the same on S3. */
import { describe } from 'vitest';
import { r2Suite } from './r2-suite.ts';

describe('R2 on disk', () => r2Suite(async () => ({ objects: { kind: 'disk' } })));
