import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

/** Two projects: `unit` is pure and quick; `e2e` starts the real programs, one file at a time (2 cores). */
export default defineConfig({
  root: fileURLToPath(new URL('..', import.meta.url)),
  test: {
    projects: [
      {
        root: fileURLToPath(new URL('..', import.meta.url)),
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/e2e/**', 'test/s3/**'],
          testTimeout: 20_000,
        },
      },
      {
        root: fileURLToPath(new URL('..', import.meta.url)),
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          fileParallelism: false,
          retry: 0,
        },
      },
      {
        root: fileURLToPath(new URL('..', import.meta.url)),
        test: {
          name: 's3',
          include: ['test/s3/**/*.test.ts'],
          testTimeout: 180_000,
          hookTimeout: 180_000,
          fileParallelism: false,
          retry: 0,
        },
      },
    ],
  },
});
