/**
 * Clients of an S3 service, and how their requests go out: minio waits for ever and collects whatever it is sent, so
 * what the service may take of time and memory is bounded here.
 */
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { pipeline, type Readable, Transform } from 'node:stream';
import { Client, type ClientOptions } from 'minio';

export interface S3Connection {
  /** Such as `https://s3.example.com` or `http://127.0.0.1:9000`. */
  endpoint: string;
  region: string;
  accessKey: string;
  secretKey: string;
}

export type Send = (options: object, answered?: (response: IncomingMessage) => void) => ClientRequest;

/** A page of a list has a thousand names; ours are short. */
const MOST_ANSWER_BYTES = 2 * 1_048_576;

/** @param more such as an agent, or the `transport` of `boundedRequests` */
export function s3Client({ endpoint, ...connection }: S3Connection, more: Partial<ClientOptions> = {}): Client {
  const { protocol, hostname, port } = new URL(endpoint);
  const useSSL = protocol === 'https:';
  const { region, accessKey, secretKey } = connection;
  return new Client({
    endPoint: hostname,
    port: Number(port) || (useSSL ? 443 : 80),
    useSSL,
    region,
    accessKey,
    secretKey,
    pathStyle: true,
    ...more,
  });
}

/**
 * Requests for parts of objects end when nothing comes any more, unless what came waits for its reader. All others
 * must be answered in that time, and briefly.
 * @param silenceMs longest silence on a connection
 */
export function boundedRequests({ endpoint }: S3Connection, silenceMs: number): Send {
  const send: Send = new URL(endpoint).protocol === 'https:' ? httpsRequest : httpRequest;
  return (options, answered) => {
    const request = send(options);
    const isForPart = hasRange(options);
    let answer: Readable | undefined;
    const fellSilent = () => {
      if (isForPart && answer !== undefined && answer.readableLength > 0) {
        request.setTimeout(silenceMs, fellSilent);
        return;
      }
      const error = new Error('the S3 service fell silent');
      // Its reader should learn this, and not that the connection broke.
      answer?.destroy(error);
      request.destroy(error);
    };
    if (isForPart) request.setTimeout(silenceMs, fellSilent);
    const timer = isForPart ? undefined : setTimeout(fellSilent, silenceMs);
    request.once('close', () => clearTimeout(timer));
    request.once('response', (response: IncomingMessage) => {
      const given = isForPart && isPart(response) ? response : limited(response);
      answer = given;
      answered?.(given);
    });
    return request;
  };
}

function hasRange(options: object): boolean {
  return 'headers' in options && typeof options.headers === 'object' && 'range' in (options.headers ?? {});
}

function isPart({ statusCode }: IncomingMessage): boolean {
  return statusCode === 206 || statusCode === 200;
}

function limited(response: IncomingMessage): IncomingMessage {
  let bytes = 0;
  const limit = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (bytes > MOST_ANSWER_BYTES) done(new Error('the S3 service answered too much'));
      else done(null, chunk);
    },
  });
  pipeline(response, limit, () => undefined);
  const { statusCode, statusMessage, headers } = response;
  // All that minio looks at.
  return Object.assign(limit, { statusCode, statusMessage, headers }) as unknown as IncomingMessage;
}

/** Whether what comes is the part that was asked for, and nothing else: Node holds the sender to its Content-Length. */
export function checkPart(response: unknown, offset: number, length: number): void {
  const { statusCode, headers } = response as Pick<IncomingMessage, 'statusCode' | 'headers'>;
  const range = /^bytes (\d+)-(\d+)\//.exec(headers['content-range'] ?? '');
  const asked =
    statusCode === 206
      ? Number(range?.[1]) === offset && Number(range?.[2]) === offset + length - 1
      : statusCode === 200 && offset === 0;
  if (!asked || Number(headers['content-length']) !== length) {
    throw new Error('the S3 service answered another part than was asked for');
  }
}
