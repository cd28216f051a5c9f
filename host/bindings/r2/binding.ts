/** `env.BUCKET`: R2, by workerd's own binding with a quicker `get`. */
import { readFileSync } from 'node:fs';
import { type Binding, stores } from '../binding.ts';

const MODULE = 'turnpike-internal:bucket';
let source: string | undefined;

export const r2: Binding = {
  key: 'r2',
  env: 'BUCKET',
  title: 'R2',
  summary: 'object storage',
  settings: stores,
  limits: ({ storage }) => ({ objectBytes: storage.objectBytes }),
  store: async () => (await import('./kind.ts')).r2Kind,
  workerd: {
    wholeUrls: true,
    module: {
      name: MODULE,
      source() {
        source ??= readFileSync(new URL('bucket-binding.js', import.meta.url), 'utf8');
        return source;
      },
    },
    write(binding, { service }) {
      const wrapped = binding.initWrapped();
      wrapped.setModuleName(MODULE);
      const inner = wrapped.initInnerBindings(2);
      const [bucket, store] = [inner.get(0), inner.get(1)];
      bucket.setName('bucket');
      bucket.initR2Bucket().setName(service);
      store.setName('store');
      store.initService().setName(service);
    },
  },
};
