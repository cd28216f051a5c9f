/**
 * The boundary for what a tenant asks to deploy: bytes of a request become a checked `DeploymentInput` here, and
 * every refusal points at the field. Code itself is judged later, by the bundler and the probe.
 */
import { z } from 'zod';
import { BINDINGS, bindingSet, bindingsSchema } from '../bindings/index.ts';
import type { CodeInput } from '../runtime/deploy/code-input.ts';
import type { Config } from '../shared/config.ts';
import type { BindingSet } from '../shared/contracts.ts';
import { type FieldError, Problem } from '../shared/problem.ts';

/** What a slug looks like. */
export const SLUG = /^[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])$/;
/** `/_admin/get/logs` is the metadata of the slug `logs`: under these names an owner's own endpoints are not reached. */
const ENDPOINTS = ['code', 'deploy', 'get', 'renew', 'session'];
const SECRET_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;

export interface DeploymentInput extends CodeInput {
  slug?: string;
  secrets?: Record<string, string>;
  /** Updates only: single secrets to set, or to remove with null. */
  secretChanges?: Record<string, string | null>;
  bindings?: BindingSet;
  compatibilityDate?: string;
  compatibilityFlags?: string[];
  crons?: string[];
  paidRoutes?: unknown[];
  payTo?: string;
  notify?: string | null;
}

function schema(config: Config['runtime']) {
  const secretValue = z
    .string()
    .refine((value) => Buffer.byteLength(value) <= config.maxSecretBytes, `at most ${config.maxSecretBytes} bytes`)
    .refine((value) => !value.includes('\0'), 'may not contain NUL');
  const secretName = z
    .string()
    .regex(SECRET_NAME, 'is an invalid secret name: use letters, digits and _ (at most 64, not starting with a digit)');
  const reserved = new Set(BINDINGS.map(({ env }) => env));
  const areReserved = `${enumeration([...reserved])} are names of bindings`;
  const names = (record: Record<string, unknown>) =>
    Object.keys(record).every((name) => !reserved.has(name)) || undefined;
  return z.strictObject({
    slug: z.string().optional(),
    code: z.string().min(1, 'is empty').optional(),
    modules: z
      .record(z.string(), z.union([z.string(), z.strictObject({ base64: z.base64() })]))
      .refine((modules) => Object.keys(modules).length > 0, 'is empty')
      .refine((modules) => Object.keys(modules).length <= 2_000, 'at most 2000 modules')
      .optional(),
    main: z.string().min(1).optional(),
    secrets: z
      .record(secretName, secretValue)
      .refine((secrets) => Object.keys(secrets).length <= config.maxSecrets, `at most ${config.maxSecrets} secrets`)
      .refine(names, areReserved)
      .optional(),
    secretChanges: z.record(secretName, secretValue.nullable()).refine(names, areReserved).optional(),
    bindings: bindingsSchema.transform(bindingSet).optional(),
    compatibilityDate: z.iso.date('expected YYYY-MM-DD').optional(),
    compatibilityFlags: z
      .array(z.string().regex(/^[a-z0-9_]{1,80}$/))
      .max(64)
      .optional(),
    crons: z.array(z.string().max(100)).max(8, 'at most 8 crons').optional(),
    paidRoutes: z.array(z.unknown()).max(100, 'at most 100 paid routes').optional(),
    payTo: z
      .string()
      .regex(/^0x[0-9a-fA-F]{40}$/, 'expected 0x and 40 hexadecimal digits')
      .optional(),
    notify: z
      .url({ protocol: /^https?$/, error: 'expected an http or https URL' })
      .max(2_000)
      .nullable()
      .optional(),
  });
}

/** @param contentType of the body: JSON, or multipart/form-data with its boundary */
export type DeploymentParser = (body: Uint8Array, contentType: string) => Promise<DeploymentInput>;

/** Largest body of a deployment: JSON escapes can double the code, base64 adds a third. */
export function deploymentBodyBytes({ maxCodeBytes }: Pick<Config['runtime'], 'maxCodeBytes'>): number {
  return 2 * maxCodeBytes + 1_048_576;
}

/** @returns a parser of JSON or multipart bodies that throws Problems pointing at the bad fields */
export function deploymentParser(config: Config['runtime']): DeploymentParser {
  const shape = schema(config);
  return async (body, contentType) => {
    const parsed = shape.safeParse(await readDocument(body, contentType));
    if (!parsed.success) {
      const errors = parsed.error.issues.flatMap((issue) => fieldErrors(issue));
      throw new Problem(
        'invalid_field',
        `Not acceptable: ${errors.map((e) => `${e.pointer} ${e.detail}`).join('; ')}.`,
        {
          errors,
        },
      );
    }
    // Absent and undefined mean the same: JSON knows no undefined.
    return Object.fromEntries(
      Object.entries(parsed.data).filter(([, value]) => value !== undefined),
    ) as DeploymentInput;
  };
}

/** @throws Problem invalid_field | slug_reserved */
export function checkSlug(slug: string | undefined, reserved: string[]): string {
  if (slug === undefined) throw fieldProblem('/slug', 'is missing: the name of your deployment');
  if (reserved.includes(slug) || ENDPOINTS.includes(slug))
    throw new Problem('slug_reserved', `The slug ${slug} is reserved; choose another.`);
  if (!SLUG.test(slug)) {
    throw fieldProblem('/slug', 'takes 3 to 40 characters a-z, 0-9 and -, not beginning or ending with -');
  }
  return slug;
}

export function fieldProblem(pointer: string, detail: string): Problem {
  return new Problem('invalid_field', `Not acceptable: ${pointer} ${detail}.`, { errors: [{ pointer, detail }] });
}

async function readDocument(body: Uint8Array, contentType: string): Promise<unknown> {
  if (contentType.startsWith('multipart/form-data')) return readMultipart(body, contentType);
  const text = new TextDecoder().decode(body);
  if (text.trim() === '') throw new Problem('invalid_json', 'The body is empty; send JSON with slug and code.');
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem('invalid_json', `The body is not JSON: ${(error as Error).message}`);
  }
}

/** A part named `metadata` with the JSON, every other part a module named by its file name, or by its field. */
async function readMultipart(body: Uint8Array, contentType: string): Promise<unknown> {
  const whole = new Response(Buffer.from(body), { headers: { 'content-type': contentType } });
  const form = await whole.formData().catch((error: Error) => {
    throw new Problem('bad_request', `The multipart body is not readable: ${error.message}`);
  });
  const given = form.get('metadata');
  const text = typeof given === 'string' ? given : given ? await given.text() : '{}';
  let metadata: Record<string, unknown>;
  try {
    metadata = JSON.parse(text) as Record<string, unknown>;
  } catch (error) {
    throw new Problem('invalid_json', `The metadata part is not JSON: ${(error as Error).message}`);
  }
  const modules: NonNullable<CodeInput['modules']> = {};
  for (const [field, value] of form.entries()) {
    if (field === 'metadata') continue;
    const name = typeof value === 'string' ? field : value.name || field;
    modules[name] =
      typeof value === 'string' ? value : { base64: Buffer.from(await value.arrayBuffer()).toString('base64') };
  }
  return Object.keys(modules).length > 0 ? { ...metadata, modules } : metadata;
}

/** `A, B and C` */
function enumeration(names: string[]): string {
  return names.join(', ').replace(/, (?=[^,]*$)/, ' and ');
}

function fieldErrors(issue: z.core.$ZodIssue): FieldError[] {
  const base = issue.path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      pointer: `${base}/${key}`,
      detail: 'is not known; /openapi.json lists the fields',
    }));
  }
  if (issue.code === 'invalid_key') {
    return [{ pointer: base, detail: issue.issues.map(({ message }) => message).join('; ') }];
  }
  return [{ pointer: base || '/', detail: issue.message }];
}
