/** One server for a run of the project `postgres` of config/vitest.config.ts. */
import type { TestProject } from 'vitest/node';
import { openPostgresRegistry } from '../../../host/registry/postgres/index.ts';
import { postgresPrograms } from '../../e2e/support/databases.ts';
import { PostgresServer } from './postgres-server.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Address of a database that holds an empty registry, and that nobody uses. */
    postgresTemplate: string | undefined;
  }
}

export default async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  if (!postgresPrograms()) return undefined;
  const server = await PostgresServer.start();
  const template = server.create('template');
  const registry = await openPostgresRegistry(template);
  // Copies are databases of their own.
  await registry.client.execute("DELETE FROM settings WHERE name = 'cluster:database'");
  await registry.end();
  project.provide('postgresTemplate', template);
  return () => server.stop();
}
