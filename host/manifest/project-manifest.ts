/** A project's `turnpike.json`: what `turnpike deploy` and `turnpike update` read beside the code. */
import { z } from 'zod';

import { bindingsSchema } from '../bindings/index.ts';
import { configSchema } from '../shared/config.ts';

const source = z
  .string()
  .regex(/^(@.+|env:[A-Za-z_]\w*)$/, 'names a file as "@path" or a variable as "env:NAME"; values do not belong here');

export const manifestSchema = z.strictObject({
  $schema: z.string().optional().describe('path or URL of the JSON Schema, for editors'),
  slug: z.string().optional().describe('name in the URL: 3 to 40 characters a-z, 0-9 and -'),
  entry: z.string().optional().describe('file with the default export, relative to this file'),
  host: z.url().optional().describe('URL of the host, such as https://api.example.com; asks for a confirmation once'),
  bindings: bindingsSchema.optional().describe('what the handler finds in env: true, or names of your own'),
  share: z
    .array(z.string())
    .optional()
    .describe(
      "bindings of kv, r2 and queues by their names in env, in wrangler's configuration too: to the owner's stores of their ids and the owner's queues, for all deployments of the owner that say so",
    ),
  open: z
    .array(z.string())
    .optional()
    .describe(
      "other owners whose deployments may call this one, in wrangler's configuration too: 0x…, 0x…/slug, or Entrypoint=0x… for a named entrypoint",
    ),
  vars: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('what the handler finds in env as text or JSON: NAME -> value; no secrets'),
  secrets: z
    .record(z.string(), source)
    .optional()
    .describe('secrets of the handler: NAME -> "@file" (a file of the project) or "env:VARIABLE"'),
  assets: z
    .strictObject({
      directory: z.string().describe('folder of the files, relative to this file'),
      binding: z.string().optional().describe('name in env of a service that answers with these files'),
      htmlHandling: z
        .enum(['auto-trailing-slash', 'force-trailing-slash', 'drop-trailing-slash', 'none'])
        .optional()
        .describe('which address an HTML file has'),
      notFoundHandling: z
        .enum(['single-page-application', '404-page', 'none'])
        .optional()
        .describe('what answers where there is no file: /index.html, the nearest 404.html, or the code'),
      basePath: z.string().optional().describe('path below which the files are, such as /docs'),
      runWorkerFirst: z
        .union([z.boolean(), z.array(z.string())])
        .optional()
        .describe('which requests the code answers although there is a file: all, or those of these patterns'),
    })
    .optional()
    .describe('static files; _headers, _redirects and .assetsignore in the folder mean what they mean at Cloudflare'),
  crons: z
    .array(z.string())
    .optional()
    .describe('cron expressions of five fields, UTC, that call scheduled(); at most 8'),
  paidRoutes: z
    .array(
      z.looseObject({
        method: z.string().describe('such as GET; * for all'),
        path: z.string().describe('such as /v1/x'),
        price: z.string().describe('USD, such as "0.05"'),
        mode: z
          .enum(['fixed', 'metered'])
          .optional()
          .describe('metered: the handler says in x-charge what it charges, at most the price'),
        description: z.string().optional().describe('what callers read before they pay'),
        slow: z
          .boolean()
          .optional()
          .describe('work takes longer than a payment stays valid: settle first, refund if it fails'),
        live: z
          .boolean()
          .optional()
          .describe(
            'with "metered" and GET: a WebSocket that is charged while it is open, by what env.PAYMENTS is told',
          ),
        perEvent: z
          .string()
          .optional()
          .describe(
            'with "metered": USD of each event of the text/event-stream that the handler answers; the price is the most that one stream costs',
          ),
        input: z
          .looseObject({})
          .optional()
          .describe('for indexers and OpenAPI: "query" and "body" as JSON Schema, "bodyType", "example" of both'),
        output: z.looseObject({}).optional().describe('likewise of the answer: "type", "schema", "example"'),
        page: z
          .string()
          .optional()
          .describe(
            'path of a page of yours that browsers get with the 402 on an origin of your own, such as /pay-me.html; HTML of up to 64 KiB with <turnpike-payment></turnpike-payment> in it, once',
          ),
        solana: z
          .string()
          .optional()
          .describe('your address on Solana: where the host takes payments there, callers may pay the price to it'),
        listed: z.boolean().optional().describe('false: the host’s own /.well-known/x402 does not name it'),
      }),
    )
    .optional()
    .describe('routes that cost money; everything else is free'),
  payTo: z.string().optional().describe('address that receives the revenue of paid routes; default: the owner'),
  notify: z.string().nullable().optional().describe('URL that is called before the deployment expires'),
  compatibilityDate: z.string().optional().describe('YYYY-MM-DD: the runtime behaves as of this day'),
  compatibilityFlags: z.array(z.string()).optional().describe('flags of workerd by name, such as nodejs_compat'),
});

export type Manifest = z.infer<typeof manifestSchema>;

/**
 * Whose file a parsed `turnpike.json` is: hosts of earlier versions had their settings under the name of projects' files.
 * `unclear`: neither would take it whole.
 */
export function ownerOfFile(document: object): 'host' | 'project' | 'unclear' {
  if (manifestSchema.safeParse(document).success) return 'project';
  const names = Object.keys(document).filter((name) => name !== '$schema');
  if (names.every((name) => Object.hasOwn(configSchema.shape, name))) return 'host';
  return names.every((name) => Object.hasOwn(manifestSchema.shape, name)) ? 'project' : 'unclear';
}
