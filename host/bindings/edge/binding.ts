/**
 * `env.EDGE.fetch(url)`: this host's own addresses (slugs, previews, domains, the admin API) without the outbound proxy.
 * The instance connects to the edge, which decides all as for any other caller; it knows which tenant calls.
 */
import { z } from 'zod';
import { type Binding, byName } from '../binding.ts';

export const edge: Binding = {
  key: 'edge',
  summary: "calls of this host's own addresses without the outbound proxy",
  settings: byName(z.strictObject({})),
  // All of a deployment are the same.
  idOf: () => '',
  server: async () => (await import('./server.ts')).edgeServer,
  workerd: {
    saysWhoCalls: true,
    write: (binding, { service }) => binding.initService().setName(service),
  },
};
