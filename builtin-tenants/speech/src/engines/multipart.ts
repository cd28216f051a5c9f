/**
 * A multipart/form-data body that streams its one file, so that audio is never held in memory
 * (`FormData` would hold all of it).
 */

/** workerd's own: a stream that declares its length, so that the request carries `Content-Length`. */
declare const FixedLengthStream:
  | (new (
      length: number,
    ) => { readable: ReadableStream<Uint8Array>; writable: WritableStream<Uint8Array> })
  | undefined;

export interface StreamedFile {
  name: string;
  body: ReadableStream<Uint8Array>;
  /** Bytes, where known: servers that cannot take chunked bodies need it. */
  length: number | undefined;
}

/** @param fields in order; names and values are ours or checked, and hold no line breaks */
export function streamMultipart(
  fields: [string, string][],
  file: StreamedFile,
): { contentType: string; body: ReadableStream<Uint8Array>; done: Promise<void> } {
  const boundary = `turnpike-${crypto.randomUUID()}`;
  const part = (disposition: string) => `--${boundary}\r\ncontent-disposition: form-data; ${disposition}\r\n`;
  const head = fields.map(([name, value]) => `${part(`name="${name}"`)}\r\n${value}\r\n`).join('');
  const fileHead = `${part(`name="file"; filename="${file.name}"`)}content-type: application/octet-stream\r\n\r\n`;
  const encoder = new TextEncoder();
  const before = encoder.encode(head + fileHead);
  const after = encoder.encode(`\r\n--${boundary}--\r\n`);
  const total = file.length === undefined ? undefined : before.byteLength + file.length + after.byteLength;
  const { readable, writable } =
    total !== undefined && typeof FixedLengthStream !== 'undefined'
      ? new FixedLengthStream(total)
      : new TransformStream<Uint8Array, Uint8Array>();
  const done = pump(writable, before, file.body, after);
  // whoever reads the body learns of a failure there
  done.catch(() => {});
  return { contentType: `multipart/form-data; boundary=${boundary}`, body: readable, done };
}

async function pump(
  writable: WritableStream<Uint8Array>,
  before: Uint8Array,
  body: ReadableStream<Uint8Array>,
  after: Uint8Array,
): Promise<void> {
  await write(writable, before);
  await body.pipeTo(writable, { preventClose: true });
  await write(writable, after);
  await writable.close();
}

async function write(writable: WritableStream<Uint8Array>, bytes: Uint8Array): Promise<void> {
  const writer = writable.getWriter();
  try {
    await writer.write(bytes);
  } finally {
    writer.releaseLock();
  }
}
