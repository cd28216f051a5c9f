/** The types of wrangler's keys, as `config-schema.json` and the checks in `cli.js` of the npm package wrangler 4.164.0 have them. */
import { z } from 'zod';
import { ENV_NAME } from '../bindings/binding.ts';

/** Of a var or a secret: the host checks it again. */
const VAR_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;

const text = z.string();
const texts = z.array(text);
const yes = z.boolean();
const number = z.number();
const filled = text.min(1, 'is empty');
/** Of a member that plain objects can have. */
const named = (pattern: RegExp, what: string) =>
  text.refine((name) => pattern.test(name) && name !== '__proto__', what);
const bindingName = named(ENV_NAME, 'is no name for a binding: use letters, digits, _ and $ (at most 64)');
const varName = named(VAR_NAME, 'is no name for a var or a secret: use letters, digits and _ (at most 64)');
const json = z.json();
const varValue = z.custom<z.infer<typeof json>>(
  (value) => json.safeParse(value).success,
  'expected text or JSON; a date has to be in quotes',
);

const binding = <Shape extends z.ZodRawShape>(shape: Shape) => z.array(z.object({ binding: bindingName, ...shape }));

/** What is there only where a host offers it, by wrangler's own names. */
export const featureShapes = {
  durable_objects: z.object({
    bindings: z
      .array(
        z.object({ name: bindingName, class_name: filled, script_name: text.optional(), environment: text.optional() }),
      )
      .default([]),
  }),
  migrations: z.array(
    z.object({
      tag: text,
      new_classes: texts.optional(),
      new_sqlite_classes: texts.optional(),
      renamed_classes: z.array(z.object({ from: text, to: text })).optional(),
      transferred_classes: z.array(z.object({ from: text, from_script: text, to: text })).optional(),
      deleted_classes: texts.optional(),
    }),
  ),
  queues: z.object({
    producers: binding({ queue: text.optional(), delivery_delay: number.optional() }).default([]),
    consumers: z
      .array(
        z.object({
          queue: filled,
          type: text.optional(),
          max_batch_size: number.optional(),
          max_batch_timeout: number.optional().describe('seconds'),
          max_retries: number.optional(),
          dead_letter_queue: text.optional(),
          max_concurrency: number.nullish(),
          visibility_timeout_ms: number.optional(),
          retry_delay: number.optional().describe('seconds'),
        }),
      )
      .default([]),
  }),
  workflows: binding({ name: filled, class_name: filled, script_name: text.optional() }),
  services: binding({
    service: filled,
    entrypoint: text.optional(),
    props: z.record(text, json).optional(),
  }),
  hyperdrive: binding({ id: text.optional(), localConnectionString: text.optional() }),
  ai: z.object({ binding: bindingName }),
  analytics_engine_datasets: binding({ dataset: filled.optional() }),
  tail_consumers: z.array(z.object({ service: filled })),
  version_metadata: z.object({ binding: bindingName }),
  ratelimits: z.array(
    z.object({ name: bindingName, namespace_id: text, simple: z.object({ limit: number, period: number }) }),
  ),
};

/** By key, of those that are translated; other keys are left out, and so are members that nobody reads. */
export const shapes = z
  .object({
    name: text,
    main: filled,
    compatibility_date: z.iso.date('expected "YYYY-MM-DD"'),
    compatibility_flags: texts,
    vars: z.record(varName, varValue),
    secrets: z.object({ required: z.array(varName).nullish() }),
    triggers: z.object({ crons: texts.nullish() }),
    kv_namespaces: binding({ id: text.optional() }),
    d1_databases: binding({
      database_id: text.optional(),
      database_name: text.optional(),
      migrations_dir: filled.optional(),
      migrations_table: filled.optional(),
      migrations_pattern: filled.optional(),
    }),
    r2_buckets: binding({ bucket_name: text.optional() }),
    rules: z.array(
      z.object({
        type: z.enum(['ESModule', 'CommonJS', 'CompiledWasm', 'Text', 'Data']),
        globs: texts,
        fallthrough: yes.optional(),
      }),
    ),
    build: z.object({ command: text.optional(), cwd: text.optional() }),
    alias: z.record(text, text),
    define: z.record(text, text),
    no_bundle: yes,
    find_additional_modules: yes,
    preserve_file_names: yes,
    base_dir: filled,
    tsconfig: filled,
    minify: yes,
    keep_names: yes,
    jsx_factory: text,
    jsx_fragment: text,
    assets: z.object({
      directory: filled.optional(),
      binding: bindingName.optional(),
      html_handling: z.enum(['auto-trailing-slash', 'force-trailing-slash', 'drop-trailing-slash', 'none']).optional(),
      not_found_handling: z.enum(['single-page-application', '404-page', 'none']).optional(),
      base_path: text.optional(),
      run_worker_first: z.union([yes, texts], 'expected true, false or a list of paths').optional(),
    }),
    ...featureShapes,
  })
  .partial();

export type Settings = z.infer<typeof shapes>;
