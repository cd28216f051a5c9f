/** `env.STORE`: Workers KV. */
import { type Binding, stores } from '../binding.ts';

export const kv: Binding = {
  key: 'kv',
  env: 'STORE',
  title: 'KV',
  summary: 'key-value storage',
  settings: stores,
  limits: ({ storage }) => ({ kvBytes: storage.kvBytes }),
  store: async () => (await import('./kind.ts')).kvKind,
  workerd: {
    wholeUrls: true,
    write: (binding, { service }) => binding.initKvNamespace().setName(service),
  },
};
