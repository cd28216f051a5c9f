/** The boundary for bodies of the admin APIs: one zod schema checks a body, and every refusal points at the field. */
import type { z } from 'zod';
import { whyAbsent } from '../bindings/absent.ts';
import { type FieldError, Problem } from '../shared/problem.ts';
import { readBody } from '../shared/request-body.ts';

export interface BodyLimits {
  maxBytes: number;
  /** Whose share of the memory for bodies it takes: an address, or `operator`. */
  caller: string;
}

/**
 * Reads a small JSON body. An empty one counts as `{}`.
 * @throws Problem `too_large`, `invalid_json`, `invalid_field`
 */
export async function readJson<T>(request: Request, schema: z.ZodType<T>, limits: BodyLimits): Promise<T> {
  const text = (await readBody(request, limits.maxBytes, limits.caller)).toString('utf8');
  return checked(schema, text.trim() === '' ? {} : parseJson(text));
}

/** @throws Problem `invalid_json` */
export function parseJson(text: string, what = 'The body'): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem('invalid_json', `${what} is not JSON: ${(error as Error).message}`);
  }
}

/** @throws Problem `invalid_field` with one error for each bad field */
export function checked<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const errors = parsed.error.issues.flatMap((issue) => fieldErrors(issue));
  const what = errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join('; ');
  throw new Problem('invalid_field', `Not acceptable: ${what}.`, { errors });
}

export function fieldProblem(pointer: string, detail: string): Problem {
  return new Problem('invalid_field', `Not acceptable: ${pointer} ${detail}.`, { errors: [{ pointer, detail }] });
}

/** Codes of values that are of another type than an alternative. */
const OTHER_TYPE = new Set(['invalid_type', 'invalid_value']);

function fieldErrors(issue: z.core.$ZodIssue): FieldError[] {
  const base = issue.path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      pointer: `${base}/${key}`,
      detail: (base === '/bindings' ? whyAbsent(key) : undefined) ?? 'is not known; /openapi.json lists the fields',
    }));
  }
  if (issue.code === 'invalid_union') {
    // Of the alternatives, the one of the right type knows what is wrong inside.
    const meant = issue.errors.find((faults) => !faults.some(({ path, code }) => !path.length && OTHER_TYPE.has(code)));
    if (meant) return meant.flatMap((fault) => fieldErrors({ ...fault, path: [...issue.path, ...fault.path] }));
  }
  if (issue.code === 'invalid_key') {
    return [{ pointer: base, detail: issue.issues.map(({ message }) => message).join('; ') }];
  }
  return [{ pointer: base || '/', detail: issue.message }];
}
