/** The suites of KV and R2 with two storage processes: what one writes, the other reads at once. */
import { afterAll, beforeAll, describe } from 'vitest';
import { kvSuite } from '../e2e/kv-suite.ts';
import { r2Suite } from '../e2e/r2-suite.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { s3Settings } from './radosgw.ts';

let postgres: PostgresServer;
beforeAll(async () => {
  postgres = await PostgresServer.start();
});
afterAll(async () => {
  await postgres?.stop();
});

const cluster = async (name: string) => ({
  cluster: { database: postgres.create(name), storage: s3Settings(name) },
});

describe('KV of a cluster', () => kvSuite(() => cluster('kv-suite')));

describe('R2 of a cluster', () => r2Suite(() => cluster('r2-suite')));
