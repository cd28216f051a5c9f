/**
 * How minio's requests go out: it waits for ever and collects whatever it is sent, so what an S3 service may take of
 * time and memory is bounded here.
 */
import type { ClientRequest, IncomingMessage } from 'node:http';
import { pipeline, type Readable, Transform } from 'node:stream';

export type Send = (options: object, answered?: (response: IncomingMessage) => void) => ClientRequest;

/** A page of a list has a thousand names; ours are short. */
const MOST_ANSWER_BYTES = 2 * 1_048_576;

/**
 * Requests for parts of objects end when nothing comes any more, unless what came waits for its reader. All others
 * must be answered in that time, and briefly.
 * @param silenceMs longest silence on a connection
 */
export function boundedRequests(send: Send, silenceMs: number): Send {
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
