/**
 * What workerd may ask of R2: the JSON of workerd's src/workerd/api/r2-api.capnp, checked where it comes in. 64-bit
 * numbers are strings there, hashes are hexadecimal except `md5`, which is base64.
 */
import { z } from 'zod';
import { r2Errors } from './errors.ts';

/** Numbers of 64 bits: JSON strings from workerd, plain numbers from others. */
const whole = z
  .union([
    z.number(),
    z
      .string()
      .regex(/^\d{1,20}$/)
      .transform(Number),
  ])
  .pipe(z.number().refine((value) => value >= 0 && Number.isInteger(value)));
/** capnp's way to say that a 64-bit field is not set. */
const UNSET = 2 ** 64;
const optionalWhole = whole.optional().transform((value) => (value === UNSET ? undefined : value));

/** Times are signed: before 1970 they come as what is missing to 2^64. The last of those says that none is set. */
const optionalTime = z
  .union([z.number().int(), z.string().regex(/^\d{1,20}$/)])
  .optional()
  .transform((given) => (given === undefined ? undefined : Number(BigInt.asIntN(64, BigInt(given)))))
  .transform((ms) => (ms === -1 ? undefined : ms));

const etag = z.discriminatedUnion('type', [
  z.object({ type: z.literal('strong'), value: z.string() }),
  z.object({ type: z.literal('weak'), value: z.string() }),
  z.object({ type: z.literal('wildcard') }),
]);

const conditional = z.object({
  etagMatches: z.array(etag).optional(),
  etagDoesNotMatch: z.array(etag).optional(),
  uploadedBefore: optionalTime,
  uploadedAfter: optionalTime,
  secondsGranularity: z.boolean().optional(),
});

const httpFields = z.object({
  contentType: z.string().optional(),
  contentLanguage: z.string().optional(),
  contentDisposition: z.string().optional(),
  contentEncoding: z.string().optional(),
  cacheControl: z.string().optional(),
  cacheExpiry: optionalWhole,
});

const customFields = z.array(z.object({ k: z.string().default(''), v: z.string().default('') }));

const hex = (bytes: number) =>
  z
    .string()
    .regex(/^[0-9a-fA-F]*$/)
    .transform((text) => Buffer.from(text, 'hex'))
    .refine((digest) => digest.length === bytes)
    .optional();

const md5 = z
  .string()
  .transform((text) => Buffer.from(text, 'base64'))
  .refine((digest) => digest.length === 16)
  .optional();

const object = z.string();
/** Present only where the caller asked for encryption with its own key. */
const ssec = z.unknown().optional();
const newObject = {
  object,
  customFields: customFields.optional(),
  httpFields: httpFields.optional(),
  storageClass: z.string().optional(),
  ssec,
};

/** Calls in the header of a GET. */
const readRequest = z.discriminatedUnion('method', [
  z.object({ method: z.literal('head'), object, ssec }),
  z.object({
    method: z.literal('get'),
    object,
    range: z.object({ offset: optionalWhole, length: optionalWhole, suffix: optionalWhole }).optional(),
    rangeHeader: z.string().optional(),
    onlyIf: conditional.optional(),
    ssec,
  }),
  z.object({
    method: z.literal('list'),
    limit: z.number().int().optional(),
    prefix: z.string().optional(),
    cursor: z.string().optional(),
    delimiter: z.string().optional(),
    startAfter: z.string().optional(),
    include: z.array(z.number()).optional(),
  }),
]);

/** Calls in front of the body of a PUT. */
const writeRequest = z.discriminatedUnion('method', [
  z.object({
    method: z.literal('put'),
    ...newObject,
    onlyIf: conditional.optional(),
    md5,
    sha1: hex(20),
    sha256: hex(32),
    sha384: hex(48),
    sha512: hex(64),
  }),
  z.object({ method: z.literal('delete'), object: object.optional(), objects: z.array(object).optional() }),
  z.object({ method: z.literal('createMultipartUpload'), ...newObject }),
  z.object({ method: z.literal('uploadPart'), object, uploadId: z.string(), partNumber: z.number().int(), ssec }),
  z.object({
    method: z.literal('completeMultipartUpload'),
    object,
    uploadId: z.string(),
    parts: z.array(z.object({ etag: z.string().default(''), part: z.number().int() })).default([]),
  }),
  z.object({ method: z.literal('abortMultipartUpload'), object, uploadId: z.string() }),
]);

export type ReadRequest = z.infer<typeof readRequest>;
export type WriteRequest = z.infer<typeof writeRequest>;
export type GetRequest = Extract<ReadRequest, { method: 'get' }>;
export type ListRequest = Extract<ReadRequest, { method: 'list' }>;
export type PutRequest = Extract<WriteRequest, { method: 'put' }>;
export type CreateRequest = Extract<WriteRequest, { method: 'createMultipartUpload' }>;
export type UploadPartRequest = Extract<WriteRequest, { method: 'uploadPart' }>;
export type CompleteRequest = Extract<WriteRequest, { method: 'completeMultipartUpload' }>;
export type AbortRequest = Extract<WriteRequest, { method: 'abortMultipartUpload' }>;
export type Conditional = z.infer<typeof conditional>;
export type HttpFields = z.infer<typeof httpFields>;
export type CustomFields = z.infer<typeof customFields>;

/** @param header value of CF-R2-Request, one character per byte */
export function parseReadRequest(header: string): ReadRequest {
  return parse(readRequest, Buffer.from(header, 'latin1').toString());
}

/** @param target path and query of the plain GET by which host/bindings/r2/bucket-binding.js asks for a whole object */
export function parseWholeGet(target: string): GetRequest {
  const [, key] = /^\/\?get=([^&]*)$/.exec(target) ?? [];
  if (key === undefined) throw r2Errors.badRequest();
  try {
    return { method: 'get', object: decodeURIComponent(key) };
  } catch {
    throw r2Errors.badRequest();
  }
}

export function parseWriteRequest(json: Buffer): WriteRequest {
  return parse(writeRequest, json.toString());
}

function parse<T>(schema: z.ZodType<T>, text: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw r2Errors.badRequest();
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw r2Errors.badRequest();
  return parsed.data;
}
