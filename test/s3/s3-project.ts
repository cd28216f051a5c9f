/** One S3 for a run of the project `s3` of config/vitest.config.ts. */
import type { TestProject } from 'vitest/node';
import { Radosgw, type S3Access } from '../e2e/support/radosgw.ts';

declare module 'vitest' {
  interface ProvidedContext {
    s3: S3Access;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const radosgw = await Radosgw.start();
  project.provide('s3', radosgw.access);
  return () => radosgw.stop();
}
