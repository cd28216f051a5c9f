import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const root = fileURLToPath(new URL('..', import.meta.url));

/** End-to-end tests that take all of the machine: what else ran beside them would wait. They stand each other. */
const ALONE = ['test/e2e/hostile.test.ts', 'test/e2e/hostile-host.test.ts'];

/** End-to-end tests of few lines that take a minute, and the longest: were they last, as short files are, one core would wait for them. */
const LONG = ['stock-clients', 'host-kills', 'toll-mixed', 'host-crash', 'speech-host', 'storage-crash'];

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification) => LONG.some((name) => moduleId.endsWith(`/${name}.test.ts`));
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

/** The real programs, on two cores: a file with what did not come about in time is run again (scripts/vitest.mjs). */
const e2e = {
  testTimeout: 400_000,
  hookTimeout: 400_000,
};

/**
 * One process runs many files after each other, and loads viem and the like once: no file changes what others import
 * or the environment.
 */
const shared = {
  isolate: false,
  maxWorkers: 2,
  // The usual second is too short where other work keeps the machine busy.
  expect: { poll: { timeout: 120_000 } },
};

/** Quick alone; a server of PostgreSQL takes its time to start where other work keeps the machine busy. */
const patient = {
  testTimeout: 60_000,
  hookTimeout: 60_000,
};

/** What needs several nodes, and so PostgreSQL. */
const NODES =
  'test/{registry/{nodes,nodes-at-work,postgres,restored,servers},bindings/objects-bucket/*,certificates/nodes}.test.ts';
/** What runs again with its registry on PostgreSQL. */
const ON_POSTGRES = [
  NODES,
  'test/registry/{deployments,leases,operator,secrets-rotation,shared-stores,statements}.test.ts',
  'test/payments/{claims,gas,guard,model,payouts}.test.ts',
  'test/control/{auto-renewer,console-sessions,deploy-keys,lifecycle}.test.ts',
];

/**
 * `unit` is pure and quick; `postgres` are those of its tests that have a registry, on a server of their own; `e2e` starts
 * the real programs, four files at a time, because each waits much of its time; `e2e-alone` are those that nothing else may
 * run beside; `s3` needs a real S3 (npm run test:s3).
 */
export default defineConfig({
  root,
  test: {
    sequence: { sequencer: LongFirst },
    projects: [
      {
        root,
        test: {
          ...shared,
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/e2e/**', 'test/s3/**', NODES],
          ...patient,
        },
      },
      {
        root,
        test: {
          ...shared,
          name: 'postgres',
          include: ON_POSTGRES,
          globalSetup: 'test/registry/support/postgres-project.ts',
          ...patient,
        },
      },
      {
        root,
        test: {
          ...shared,
          ...e2e,
          maxWorkers: 4,
          // Not beside others, which have two.
          sequence: { groupOrder: 1 },
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          exclude: ALONE,
        },
      },
      { root, test: { ...e2e, ...shared, name: 'e2e-alone', include: ALONE } },
      {
        root,
        test: {
          ...e2e,
          ...shared,
          name: 's3',
          include: ['test/s3/**/*.test.ts'],
          globalSetup: 'test/s3/s3-project.ts',
        },
      },
    ],
  },
});
