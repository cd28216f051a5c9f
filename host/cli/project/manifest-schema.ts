/** A tenant's `turnpike.json`, which is named like a host's own configuration. */
import { z } from 'zod';

const toggle = z.union([z.boolean(), z.strictObject({})]);
const source = z
  .string()
  .regex(/^(@.+|env:[A-Za-z_]\w*)$/, 'names a file as "@path" or a variable as "env:NAME"; values do not belong here');

export const manifestSchema = z.strictObject({
  $schema: z.string().optional(),
  slug: z.string().optional(),
  entry: z.string().optional().describe('file with the default export, relative to the manifest'),
  host: z.url().optional().describe('address of the host'),
  bindings: z
    .strictObject({
      kv: toggle.optional(),
      d1: toggle.optional(),
      r2: toggle.optional(),
      payments: toggle.optional(),
    })
    .optional(),
  secrets: z.record(z.string(), source).optional(),
  crons: z.array(z.string()).optional(),
  paidRoutes: z.array(z.looseObject({ method: z.string(), path: z.string(), price: z.string() })).optional(),
  payTo: z.string().optional(),
  notify: z.string().nullable().optional(),
  compatibilityDate: z.string().optional(),
  compatibilityFlags: z.array(z.string()).optional(),
});

export type Manifest = z.infer<typeof manifestSchema>;
