/** Rate limits: `await env.LIMIT.limit({ key })` says whether a key may go on. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { type Binding, byName } from '../binding.ts';

const MODULE = 'turnpike-internal:ratelimit';

/** As Cloudflare has them. */
const settings = z.strictObject({
  limit: z.int().positive().max(1_000_000).describe('calls of a key in a period'),
  period: z.union([z.literal(10), z.literal(60)], 'takes 10 or 60').describe('seconds, 10 or 60'),
  namespace: z.string().max(64).optional().describe('bindings of one namespace count together; default: the name'),
});

let source: string | undefined;

export const ratelimit: Binding = {
  key: 'ratelimit',
  title: 'rate limit',
  summary: 'limits of calls by key',
  settings: byName(settings),
  workerd: {
    module: {
      name: MODULE,
      source() {
        source ??= readFileSync(new URL('ratelimit-binding.js', import.meta.url), 'utf8');
        return source;
      },
    },
    write(binding, { name, settings: { limit, period, namespace = name } }) {
      const wrapped = binding.initWrapped();
      wrapped.setModuleName(MODULE);
      const options = wrapped.initInnerBindings(1).get(0);
      options.setName('options');
      options.setJson(JSON.stringify({ limit, period, namespace }));
    },
  },
};
