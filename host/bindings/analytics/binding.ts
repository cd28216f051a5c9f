/**
 * Analytics Engine: `env.VISITS.writeDataPoint({ indexes, blobs, doubles })` records a data point of a dataset, and the
 * owner asks for them with SQL. https://developers.cloudflare.com/analytics/analytics-engine/
 */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import type { ServiceDesignator } from '../../capnp/generated/workerd.cjs';
import { type Binding, byName } from '../binding.ts';
import { DATABASES_SERVICE } from '../d1/binding.ts';
import { DEFAULT_STORE } from '../stores.ts';
import { DATASET } from './dataset.ts';
import { FOLDER } from './files.ts';
import { POINTS_DATABASE } from './points-database.ts';

const MODULE = 'turnpike-internal:analytics';

const INVALID = 'is an invalid name of a dataset: use letters, digits, _, $ and - (at most 64)';

const settings = z.strictObject({
  dataset: z.string().regex(DATASET, INVALID).optional().describe('the table that SQL names; default: the name'),
});

/** What the data points of a binding are called in SQL. */
export function datasetOf(name: string, { dataset = name }: Readonly<Record<string, unknown>>): string {
  return String(dataset);
}

let source: string | undefined;

export const analytics: Binding = {
  key: 'analytics',
  title: 'Analytics Engine',
  summary: 'data points for SQL',
  settings: byName(settings).refine(
    (all) => Object.entries(all || {}).every(([name, one]) => DATASET.test(datasetOf(name, one))),
    'has a name that no dataset may have; give it another "dataset"',
  ),
  limits: ({ storage }) => ({ analyticsBytes: storage.analyticsBytes }),
  // All datasets of a deployment are in one database.
  idOf: () => DEFAULT_STORE,
  // A message that is not taken is told to the handler's log.
  serverForPreviews: async () => (await import('../d1/live-database.ts')).liveDatabases('analytics', 503),
  server: async () => (await import('./server.ts')).analyticsServer,
  data: { folder: FOLDER, copy: async () => (await import('../d1/copy.ts')).copySql },
  workerd: {
    module: {
      name: MODULE,
      source() {
        source ??= readFileSync(new URL('analytics-binding.js', import.meta.url), 'utf8');
        return source;
      },
    },
    write(binding, { name, service, settings, isClustered }) {
      const wrapped = binding.initWrapped();
      wrapped.setModuleName(MODULE);
      const inner = wrapped.initInnerBindings(2);
      const [dataset, store] = [inner.get(0), inner.get(1)];
      dataset.setName('dataset');
      dataset.setText(datasetOf(name, settings));
      store.setName('store');
      writeStore(store.initService(), service, isClustered);
    },
    writeControl: (binding, { service, isClustered }) => writeStore(binding.initService(), service, isClustered),
  },
};

function writeStore(target: ServiceDesignator, service: string, isClustered: boolean): void {
  target.setName(isClustered ? DATABASES_SERVICE : service);
  if (isClustered) target.getProps().setJson(JSON.stringify({ database: POINTS_DATABASE }));
}
