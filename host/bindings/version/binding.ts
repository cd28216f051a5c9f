/** What runs: `id`, `tag` and `timestamp`, as Cloudflare's version metadata. */
import { z } from 'zod';
import { type Binding, byName } from '../binding.ts';

export const version: Binding = {
  key: 'version',
  title: 'version metadata',
  summary: 'id and time of what runs',
  settings: byName(z.strictObject({})),
  workerd: {
    write: (binding, { version: { id, at } }) =>
      binding.setJson(JSON.stringify({ id, tag: '', timestamp: new Date(at).toISOString() })),
  },
};
