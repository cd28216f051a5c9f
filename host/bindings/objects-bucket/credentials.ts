/**
 * Who may speak to the bucket of objects: a tenant's credentials, which the host derives from one secret of all nodes, and
 * the check of a request's signature (AWS Signature Version 4 in the Authorization header, the body unsigned).
 * https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

export interface Credentials {
  accessKey: string;
  secretKey: string;
}

/** What of a request is signed. */
export interface SignedRequest {
  method: string;
  /** As it was sent, with its query. */
  target: string;
  headers: Readonly<Record<string, string | string[] | undefined>>;
}

export const REGION = 'us-east-1';
/** The only body digest that is accepted: workerd sends no other, and the connection does not leave this machine. */
const UNSIGNED = 'UNSIGNED-PAYLOAD';
/** By how much the clock of a signature may differ, ms: it is made on the same machine. */
const MOST_SKEW_MS = 60_000;
const MUST_BE_SIGNED = ['host', 'x-amz-content-sha256', 'x-amz-date'];
const AUTHORIZATION =
  /^AWS4-HMAC-SHA256 Credential=([\w-]{1,64})\/(\d{8})\/([\w-]{1,32})\/s3\/aws4_request, ?SignedHeaders=([a-z0-9;-]{1,256}), ?Signature=([0-9a-f]{64})$/;

/** @param secret of all nodes of the host, and of nobody else */
export function credentialsOf(secret: Buffer, tenant: string): Credentials {
  return { accessKey: tenant, secretKey: hmac(secret, `objects bucket of ${tenant}`).toString('hex') };
}

/** What instances of a tenant on different nodes trust each other by; told to workerd alone. */
export function peerKeyOf(secret: Buffer, tenant: string): string {
  return hmac(secret, `objects peers of ${tenant}`).toString('hex');
}

/** Whether the holder of these credentials has signed the request lately. @param now ms */
export function isSignedBy({ accessKey, secretKey }: Credentials, request: SignedRequest, now: number): boolean {
  const { method, target, headers } = request;
  const [, id, day = '', region, names = '', signature = ''] = AUTHORIZATION.exec(one(headers.authorization)) ?? [];
  const date = one(headers['x-amz-date']);
  if (id !== accessKey || region !== REGION || one(headers['x-amz-content-sha256']) !== UNSIGNED) return false;
  const [, year, month, date_, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(date) ?? [];
  const at = Date.parse(`${year}-${month}-${date_}T${hour}:${minute}:${second}Z`);
  // NaN is no time that is near.
  if (!(Math.abs(at - now) <= MOST_SKEW_MS) || !date.startsWith(day)) return false;
  const signed = names.split(';');
  if (!MUST_BE_SIGNED.every((name) => signed.includes(name))) return false;
  const [path = '', query = ''] = split(target);
  const canonical = [
    method,
    path,
    query.split('&').filter(Boolean).map(pair).sort().join('&'),
    ...signed.map((name) => `${name}:${one(headers[name]).trim().replace(/ +/g, ' ')}`),
    '',
    names,
    UNSIGNED,
  ].join('\n');
  const scope = `${day}/${REGION}/s3/aws4_request`;
  const text = ['AWS4-HMAC-SHA256', date, scope, createHash('sha256').update(canonical).digest('hex')].join('\n');
  const key = [REGION, 's3', 'aws4_request'].reduce(hmac, hmac(`AWS4${secretKey}`, day));
  return timingSafeEqual(hmac(key, text), Buffer.from(signature, 'hex'));
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function one(value: string | string[] | undefined): string {
  return typeof value === 'string' ? value : '';
}

function pair(text: string): string {
  return text.includes('=') ? text : `${text}=`;
}

function split(target: string): [string, string] {
  const at = target.indexOf('?');
  return at < 0 ? [target, ''] : [target.slice(0, at), target.slice(at + 1)];
}
