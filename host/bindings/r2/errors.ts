/**
 * Every way in which R2 refuses a call. workerd shows the tenant `<method>: <message> (<v4code>)`, taken from the header
 * CF-R2-Error. Codes and texts: https://developers.cloudflare.com/r2/api/error-codes and miniflare's
 * src/workers/r2/errors.worker.ts. The codes from 10500 on are this host's own.
 */
import { Refusal } from '../store-process/refusal.ts';
import type { ObjectRow } from './objects.ts';

export class R2Error extends Refusal {
  readonly status: number;
  readonly v4code: number;
  /** A failed condition of a get still tells the object's metadata. */
  readonly object: ObjectRow | undefined;

  constructor(status: number, v4code: number, message: string, object?: ObjectRow) {
    super(message);
    this.name = 'R2Error';
    this.status = status;
    this.v4code = v4code;
    this.object = object;
  }
}

type Algorithm = 'MD5' | 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512';

export const r2Errors = {
  internal: () => new R2Error(500, 10001, 'We encountered an internal error. Please try again.'),
  noSuchKey: () => new R2Error(404, 10007, 'The specified key does not exist.'),
  partTooSmall: () => new R2Error(400, 10011, 'Your proposed upload is smaller than the minimum allowed object size.'),
  metadataTooLarge: () => new R2Error(400, 10012, 'Your metadata headers exceed the maximum allowed metadata size.'),
  lengthMissing: () => new R2Error(411, 10033, 'You must provide the Content-Length HTTP header.'),
  badName: () => new R2Error(400, 10020, 'The specified object name is not valid.'),
  badLimit: () => new R2Error(400, 10022, 'MaxKeys params must be positive integer <= 1000.'),
  noSuchUpload: () => new R2Error(404, 10024, 'The specified multipart upload does not exist.'),
  badPart: () => new R2Error(400, 10025, 'One or more of the specified parts could not be found.'),
  badRequest: () => new R2Error(400, 10029, 'Metadata missing or invalid'),
  badArgument: (detail: string) => new R2Error(400, 10029, detail),
  preconditionFailed: (object?: ObjectRow) =>
    new R2Error(412, 10031, 'At least one of the pre-conditions you specified did not hold.', object),
  badCursor: () => new R2Error(400, 10029, 'The cursor is not valid. Use the cursor of an earlier list.'),
  badDigest: (algorithm: Algorithm, given: Buffer, actual: Buffer) =>
    new R2Error(
      400,
      10037,
      [
        `The ${algorithm} checksum you specified did not match what we received.`,
        `You provided a ${algorithm} checksum with value: ${given.toString('hex')}`,
        `Actual ${algorithm} was: ${actual.toString('hex')}`,
      ].join('\n'),
    ),
  badRange: () => new R2Error(416, 10039, 'The requested range is not satisfiable'),
  badUpload: () => new R2Error(400, 10048, 'There was a problem with the multipart upload.'),
  tooManyRequests: () =>
    new R2Error(429, 10058, 'Reduce your concurrent request rate: too many storage requests are in flight.'),
  storageClass: () => new R2Error(400, 10062, 'The storage class specified is not valid.'),
  tooLarge: () => new R2Error(400, 100100, 'Your proposed upload exceeds the maximum allowed object size.'),
  quota: (bytes: number) =>
    new R2Error(507, 10507, `The storage quota of ${bytes} bytes is used up. Delete objects, then try again.`),
  diskFull: () => new R2Error(507, 10507, 'The disk of this host is full. Try again when its operator has made room.'),
  ssec: () =>
    new R2Error(501, 10501, 'Encryption with customer keys (ssecKey) is not supported by this host. Leave it out.'),
};
