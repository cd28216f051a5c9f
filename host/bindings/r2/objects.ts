/**
 * An object's row of the index, and its form on the wire (R2HeadResponse in workerd's r2-api.capnp). Metadata is kept
 * as the JSON it is answered with, so that a get joins strings and parses nothing.
 */
import type { Value } from '../store-process/work.ts';
import { r2Errors } from './errors.ts';
import { MAX_HTTP_METADATA_BYTES, MAX_KEY_BYTES, MAX_METADATA_BYTES } from './limits.ts';
import type { Range } from './ranges.ts';
import type { CustomFields, HttpFields } from './requests.ts';

/** Columns in the order of ObjectRow, without the bytes. */
export const OBJECT_COLUMNS =
  'key, version, size, etag, uploaded, checksums, http, custom, storage_class, charge, blob';

/** What a reading adds to them: `typeof` does not fetch the bytes, `IS NOT NULL` would. */
export const READ_COLUMNS = `${OBJECT_COLUMNS}, typeof(value) = 'blob'`;

export interface ObjectRow {
  key: Buffer;
  version: string;
  size: number;
  etag: string;
  /** ms since the epoch */
  uploaded: number;
  /** JSON members such as `"0":"<hex>"` */
  checksums: string;
  /** JSON object, or null for none */
  http: string | null;
  /** JSON list of {k,v}, or null for none */
  custom: string | null;
  storageClass: string;
  /** Bytes counted against the quota. */
  charge: number;
  /** Name of the bytes, where they are one blob. */
  blob: string | null;
  /** The bytes are in the index itself. Neither this nor a blob: the object is empty, or made of parts. */
  inline: boolean;
}

export function objectRow(columns: Value[]): ObjectRow {
  const [key, version, size, etag, uploaded, checksums, http, custom, storageClass, charge, blob, inline] = columns as [
    Buffer,
    string,
    number,
    string,
    number,
    string,
    string | null,
    string | null,
    string,
    number,
    string | null,
    number,
  ];
  return {
    key,
    version,
    size,
    etag,
    uploaded,
    checksums,
    http,
    custom,
    storageClass,
    charge,
    blob,
    inline: inline === 1,
  };
}

/** In the order of OBJECT_COLUMNS. */
export function objectColumns(row: ObjectRow): Value[] {
  return [
    row.key,
    row.version,
    row.size,
    row.etag,
    row.uploaded,
    row.checksums,
    row.http,
    row.custom,
    row.storageClass,
    row.charge,
    row.blob,
  ];
}

export interface Shown {
  range?: Range;
  http: boolean;
  custom: boolean;
}

export function objectJson(row: ObjectRow, shown: Shown): string {
  let json = `{"name":${JSON.stringify(row.key.toString())},"version":"${row.version}","size":${row.size},"etag":"${row.etag}","uploaded":${row.uploaded}`;
  if (shown.http) json += `,"httpFields":${row.http ?? '{}'}`;
  if (shown.custom) json += `,"customFields":${row.custom ?? '[]'}`;
  if (shown.range) json += `,"range":{"offset":${shown.range.offset},"length":${shown.range.length}}`;
  return `${json},"checksums":{${row.checksums}},"storageClass":"${row.storageClass}"}`;
}

/** The key as bytes, in which form it is stored and ordered. */
export function checkedKey(key: string): Buffer {
  const bytes = Buffer.from(key);
  if (bytes.length > MAX_KEY_BYTES) throw r2Errors.badName();
  return bytes;
}

/** What a put and a multipart upload tell about the object to come. */
export interface Described {
  key: Buffer;
  http: string | null;
  custom: string | null;
  storageClass: string;
}

/** Checks everything that is known of a new object before its bytes. */
export function describe(request: {
  object: string;
  httpFields?: HttpFields | undefined;
  customFields?: CustomFields | undefined;
  storageClass?: string | undefined;
  ssec?: unknown;
}): Described {
  const key = checkedKey(request.object);
  if (request.ssec !== undefined) throw r2Errors.ssec();
  const { customFields, httpFields } = request;
  if (customFields && metadataBytes(customFields) > MAX_METADATA_BYTES) throw r2Errors.metadataTooLarge();
  const http = httpFields && Object.keys(httpFields).length > 0 ? JSON.stringify(httpFields) : null;
  if (http !== null && Buffer.byteLength(http) > MAX_HTTP_METADATA_BYTES) throw r2Errors.metadataTooLarge();
  // Left out is Standard (https://developers.cloudflare.com/r2/buckets/storage-classes/).
  const storageClass = request.storageClass || 'Standard';
  if (storageClass !== 'Standard' && storageClass !== 'InfrequentAccess') throw r2Errors.storageClass();
  return {
    key,
    http,
    custom: customFields && customFields.length > 0 ? JSON.stringify(customFields) : null,
    storageClass,
  };
}

/** As R2 counts: two bytes for each character of a text that has one above U+00FF. */
function metadataBytes(fields: CustomFields): number {
  const size = (text: string) => (/[^\0-\xff]/.test(text) ? text.length * 2 : text.length);
  return fields.reduce((sum, { k, v }) => sum + size(k) + size(v), 0);
}

export function chargeOf(described: Described, size: number): number {
  return described.key.length + size + (described.http?.length ?? 0) + (described.custom?.length ?? 0);
}
