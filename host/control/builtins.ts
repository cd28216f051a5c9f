/**
 * The built-in tenants of this version: folders of builtin-tenants/ with a `turnpike.json`, which is a deploy body with
 * the file of the entry (`main`) and what the tenant asks of the host (`builtin`). The host knows no other way to tell
 * one from another.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';

const MANIFEST = 'turnpike.json';
const SECRET = /^[A-Z][A-Z0-9_]*$/;

/** Where the value of a secret comes from; builtin-secrets.ts has the values. */
export const SOURCES = [
  'generate',
  'appUrl',
  'pagesUrl',
  'clockOffset',
  'network',
  'recipient',
  'offers',
  'demoWallet',
  'places',
  'mailerUrl',
  'welcomeDays',
  'welcomeTotal',
] as const;

/** Programs of the host that a tenant may reach, each as `http://<name>.internal`. */
export const COMPANIONS = ['mailer', 'speech-engine'] as const;
export type Companion = (typeof COMPANIONS)[number];

const viewSchema = z.strictObject({ title: z.string(), path: z.string().startsWith('/').describe('of a GET') });
const actSchema = z.strictObject({
  title: z.string(),
  method: z.enum(['POST', 'PUT', 'DELETE']),
  path: z.string().startsWith('/').describe('`{name}` in it is a field with `"as": "path"`'),
  fields: z.array(
    z.strictObject({
      name: z.string().regex(/^\w+$/),
      label: z.string(),
      as: z
        .enum(['path', 'text', 'optional', 'number', 'flag'])
        .describe('how its text is sent; optional: left out when empty'),
      hint: z.string().optional(),
    }),
  ),
});

const asksSchema = z.strictObject({
  title: z.string().describe('what pages call it'),
  description: z.string().describe('what it is, for the landing page'),
  secrets: z
    .record(z.string().regex(SECRET), z.union([z.enum(SOURCES), z.string().regex(/^[a-z0-9-]+:[A-Z][A-Z0-9_]*$/)]))
    .default({})
    .describe(
      'secret -> where its value comes from; "slug:NAME" is the same as that secret of another built-in tenant',
    ),
  companions: z.array(z.enum(COMPANIONS)).default([]),
  sells: z
    .array(z.string().regex(/^\/[\w./-]+$/))
    .default([])
    .describe('paths of this host at which it is paid otherwise than by paidRoutes, for indexers'),
  operatorApi: z
    .strictObject({
      path: z.string().regex(/^\/[\w-]+$/),
      key: z.string().regex(SECRET),
      renewals: z
        .string()
        .regex(/^\/[\w-]+$/)
        .optional()
        .describe('path of its operator API by which deployments renew from prepaid credit'),
      views: z.array(viewSchema).default([]).describe('what the operator’s console shows of it'),
      acts: z.array(actSchema).default([]).describe('what the operator’s console does by it'),
    })
    .optional()
    .describe('the operator API forwards /<slug>/* to this path, with this secret as bearer token'),
});

export interface Builtin {
  /** Name of its folder, which is also its slug. */
  name: string;
  folder: string;
  /** Path of the module with the handler. */
  main: string;
  /** Body of its deploy, without code. */
  body: Record<string, unknown>;
  asks: z.infer<typeof asksSchema>;
}

/** @throws Error for a manifest that this version cannot read: a defect of ours */
export function readBuiltin(folder: string): Builtin {
  const text = readFileSync(path.join(folder, MANIFEST), 'utf8');
  const { main, $schema: _schema, builtin, ...body } = JSON.parse(text) as Record<string, unknown>;
  return {
    name: path.basename(folder),
    folder,
    main: path.join(folder, String(main)),
    body,
    asks: asksSchema.parse(builtin),
  };
}

/**
 * All built-in tenants of a folder, whether they are enabled or not.
 * @throws Problem invalid_config for settings of one that is not there
 */
export function readBuiltins(folder: string, { enabled, secrets }: Config['builtinTenants']): Builtin[] {
  const names = readdirSync(folder).filter((name) => existsSync(path.join(folder, name, MANIFEST)));
  for (const [setting, given] of Object.entries({ enabled, secrets: Object.keys(secrets) })) {
    const unknown = given.find((name) => !names.includes(name));
    if (unknown === undefined) continue;
    throw new Problem(
      'invalid_config',
      `builtinTenants.${setting}: there is no built-in tenant ${unknown}; there are ${names.join(', ')}.`,
    );
  }
  return names.map((name) => readBuiltin(path.join(folder, name)));
}

/** Companions that enabled tenants ask for. */
export function wantedCompanions(builtins: readonly Builtin[], enabled: readonly string[]): ReadonlySet<Companion> {
  return new Set(builtins.flatMap(({ name, asks }) => (enabled.includes(name) ? asks.companions : [])));
}
