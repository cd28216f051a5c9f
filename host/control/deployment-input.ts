/**
 * The boundary for what a tenant asks to deploy: bytes of a request become a checked `DeploymentInput` here, and
 * every refusal points at the field. Code itself is judged later, by the bundler and the probe.
 */
import { z } from 'zod';
import { assetsSchema } from '../assets/asset-list.ts';
import { BINDINGS, bindingSet, bindingsSchema } from '../bindings/index.ts';
import { paidRoutesSchema } from '../payments/paid-routes.ts';
import type { CodeInput } from '../runtime/deploy/code-input.ts';
import type { Config } from '../shared/config.ts';
import { CONSOLE_LABEL } from '../shared/console-place.ts';
import type { BindingSet } from '../shared/contracts.ts';
import { previewOf } from '../shared/previews.ts';
import { Problem } from '../shared/problem.ts';
import { SLUG } from '../shared/slug.ts';
import { checked, fieldProblem, parseJson } from './body.ts';
import { type Endpoint, jsonBody } from './endpoint.ts';

/**
 * `/_admin/get/logs` is the metadata of the slug `logs`: under these names an owner's own endpoints are not reached.
 * Below a base domain the console has its name, and agents ask at /mcp.
 */
const OWN_NAMES = ['code', CONSOLE_LABEL, 'deploy', 'get', 'mcp', 'renew', 'session'];
/** As many as Cloudflare allows. */
const MOST_VARS = 128;
const MAX_VARS_BYTES = 65_536;
const SECRET_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;

export interface DeploymentInput extends CodeInput {
  slug?: string;
  secrets?: Record<string, string>;
  /** Updates only: single secrets to set, or to remove with null. */
  secretChanges?: Record<string, string | null>;
  bindings?: BindingSet;
  vars?: Record<string, unknown>;
  /** Updates only: the code becomes a version that is not live. */
  preview?: boolean;
  /** Updates only. */
  assets?: z.infer<typeof assetsSchema> | null;
  compatibilityDate?: string;
  compatibilityFlags?: string[];
  crons?: string[];
  paidRoutes?: unknown[];
  payTo?: string;
  notify?: string | null;
}

/** What a deploy or an update may hold: it checks the body, and describes it in /openapi.json. */
function fields(config: Config['runtime']) {
  const secretValue = z
    .string()
    .refine((value) => Buffer.byteLength(value) <= config.maxSecretBytes, `at most ${config.maxSecretBytes} bytes`)
    .refine((value) => !value.includes('\0'), 'may not contain NUL');
  const secretName = z
    .string()
    .regex(SECRET_NAME, 'is an invalid secret name: use letters, digits and _ (at most 64, not starting with a digit)');
  return z.strictObject({
    slug: z
      .string()
      .describe('The name in the URL: 3 to 40 characters a-z, 0-9 and -.')
      .meta({ pattern: SLUG.source })
      .optional(),
    code: z
      .string()
      .min(1, 'is empty')
      .optional()
      .describe('One JavaScript or TypeScript module with a default export that has fetch().'),
    modules: z
      .record(z.string(), z.union([z.string(), z.strictObject({ base64: z.base64() })]))
      .refine((modules) => Object.keys(modules).length > 0, 'is empty')
      .refine((modules) => Object.keys(modules).length <= 2_000, 'at most 2000 modules')
      .optional()
      .describe('Module name -> source text, or {"base64": …} for bytes (.wasm, .bin). Use with main.'),
    main: z.string().min(1).optional().describe('The entry among modules, such as index.ts.'),
    secrets: z
      .record(secretName, secretValue)
      .refine((secrets) => Object.keys(secrets).length <= config.maxSecrets, `at most ${config.maxSecrets} secrets`)
      .optional()
      .describe('Name -> value; env.NAME in the handler. Never shown again.'),
    secretChanges: z
      .record(secretName, secretValue.nullable())
      .optional()
      .describe('Sets single secrets; null removes one. Not beside secrets.'),
    vars: z
      .record(secretName, z.unknown())
      .refine((vars) => Object.keys(vars).length <= MOST_VARS, `at most ${MOST_VARS} vars`)
      .refine((vars) => Buffer.byteLength(JSON.stringify(vars)) <= MAX_VARS_BYTES, `at most ${MAX_VARS_BYTES} bytes`)
      .optional()
      .describe('Name -> text or JSON; env.NAME in the handler. Not for secrets: they are kept as they are.'),
    bindings: bindingsSchema
      .transform(bindingSet)
      .optional()
      .describe(
        `${BINDINGS.map(({ key, env, summary }) => `${key}: ${env ? `env.${env}` : summary}`).join(', ')}; such as {"kv":true}, or by names of your own: {"kv":{"SESSIONS":{},"CACHE":{}}}.`,
      ),
    assets: assetsSchema
      .nullable()
      .optional()
      .describe('Updates only: static files, once each was sent by PUT /_admin/<slug>/assets/<sha256>; null: none.'),
    preview: z
      .boolean()
      .optional()
      .describe(
        'Updates only: with true, code and assets become a version that is not live and has an address of its own; nothing else changes.',
      ),
    compatibilityDate: z.iso
      .date('expected YYYY-MM-DD')
      .optional()
      .describe('YYYY-MM-DD: behaviour of the runtime as of this day, or of the newest day that this host knows.'),
    compatibilityFlags: z
      .array(z.string().regex(/^[a-z0-9_]{1,80}$/))
      .max(64)
      .optional()
      .describe('Flags of workerd by name.'),
    crons: z
      .array(z.string().max(100))
      .max(8, 'at most 8 crons')
      .optional()
      .describe(
        'Five-field cron expressions, UTC; run scheduled(). Two of a deployment begin at a time; others wait until one has ended or has run for 30 seconds.',
      ),
    paidRoutes: paidRoutesSchema
      .optional()
      .describe(
        'Routes that cost money: {"method", "path", "price"} each, such as {"method":"POST","path":"/v1/x","price":"0.05"}; with "mode":"metered" the handler says in x-charge what it charges, at most the price.',
      ),
    payTo: z
      .string()
      .regex(/^0x[0-9a-fA-F]{40}$/, 'expected 0x and 40 hexadecimal digits')
      .optional()
      .describe('Address that receives the revenue of paid routes; default: the owner.'),
    notify: z
      .url({ protocol: /^https?$/, error: 'expected an http or https URL' })
      .max(2_000)
      .nullable()
      .optional()
      .describe('Called before the deployment expires.'),
  });
}

/** Body of a deploy, as /openapi.json describes it. */
export function deployBody(config: Config['runtime']): NonNullable<Endpoint['body']> {
  const { secretChanges: _, assets: __, preview: ___, slug, ...shape } = fields(config).shape;
  const anyOf = [{ required: ['code'] }, { required: ['modules', 'main'] }];
  const examples = [{ slug: 'hello', code: "export default { fetch: () => new Response('hi') }" }];
  return jsonBody(z.strictObject({ slug: slug.unwrap(), ...shape }), true, { anyOf, examples });
}

/** Body of an update, as /openapi.json describes it. */
export function updateBody(config: Config['runtime']): NonNullable<Endpoint['body']> {
  return jsonBody(fields(config).omit({ slug: true }).meta({ minProperties: 1 }));
}

/** @param contentType of the body: JSON, or multipart/form-data with its boundary */
export type DeploymentParser = (body: Uint8Array, contentType: string) => Promise<DeploymentInput>;

/** Largest body of a deployment: JSON escapes can double the code, base64 adds a third. */
export function deploymentBodyBytes({ maxCodeBytes }: Pick<Config['runtime'], 'maxCodeBytes'>): number {
  return 2 * maxCodeBytes + 1_048_576;
}

/** @returns a parser of JSON or multipart bodies that throws Problems pointing at the bad fields */
export function deploymentParser(config: Config['runtime']): DeploymentParser {
  const schema = fields(config);
  return async (body, contentType) => {
    const input = checked(schema, await readDocument(body, contentType));
    // Absent and undefined mean the same: JSON knows no undefined.
    return Object.fromEntries(Object.entries(input).filter(([, value]) => value !== undefined)) as DeploymentInput;
  };
}

/** @throws Problem invalid_field | slug_reserved */
export function checkSlug(slug: string | undefined, reserved: string[]): string {
  if (slug === undefined) throw fieldProblem('/slug', 'is missing: the name of your deployment');
  if (previewOf(slug)) throw fieldProblem('/slug', 'begins like the address of a version');
  if (reserved.includes(slug) || OWN_NAMES.includes(slug))
    throw new Problem('slug_reserved', `The slug ${slug} is reserved; choose another.`);
  if (!SLUG.test(slug)) {
    throw fieldProblem('/slug', 'takes 3 to 40 characters a-z, 0-9 and -, not beginning or ending with -');
  }
  return slug;
}

async function readDocument(body: Uint8Array, contentType: string): Promise<unknown> {
  if (contentType.startsWith('multipart/form-data')) return readMultipart(body, contentType);
  const text = new TextDecoder().decode(body);
  if (text.trim() === '') throw new Problem('invalid_json', 'The body is empty; send JSON with slug and code.');
  return parseJson(text);
}

/** A part named `metadata` with the JSON, every other part a module named by its file name, or by its field. */
async function readMultipart(body: Uint8Array, contentType: string): Promise<unknown> {
  const whole = new Response(Buffer.from(body), { headers: { 'content-type': contentType } });
  const form = await whole.formData().catch((error: Error) => {
    throw new Problem(
      'bad_request',
      `The multipart body is not readable; send it as multipart/form-data says: ${error.message}`,
    );
  });
  const given = form.get('metadata');
  const text = typeof given === 'string' ? given : given ? await given.text() : '{}';
  const metadata = parseJson(text, 'The metadata part') as Record<string, unknown>;
  const modules: NonNullable<CodeInput['modules']> = {};
  for (const [field, value] of form.entries()) {
    if (field === 'metadata') continue;
    const name = typeof value === 'string' ? field : value.name || field;
    modules[name] =
      typeof value === 'string' ? value : { base64: Buffer.from(await value.arrayBuffer()).toString('base64') };
  }
  return Object.keys(modules).length > 0 ? { ...metadata, modules } : metadata;
}
