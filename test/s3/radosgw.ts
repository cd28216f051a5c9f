/** The S3 of these tests: one for all files, made by s3-project.ts; each test takes buckets of its own. */
import { inject } from 'vitest';
import type { S3Settings, StorageInit } from '../../host/shared/contracts.ts';
import { settingsOf } from '../e2e/support/radosgw.ts';

type S3Objects = Extract<StorageInit['objects'], { kind: 's3' }>;

/** Settings of storage.s3 for a bucket, which is created by the storage process. */
export function s3Objects(bucket: string): S3Objects {
  return { kind: 's3', ...s3Settings(bucket) };
}

/** The same as `s3Objects`, for stores of several nodes. */
export function s3Settings(bucket: string): S3Settings {
  return settingsOf(inject('s3'), bucket);
}
