/** An S3 service that answers whatever it likes: time and memory stay bounded, errors are told, nothing false is taken. */
import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Readable } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { SharedAssets } from '../../../host/assets/shared-assets.ts';
import type { BlobBackend } from '../../../host/bindings/store-process/blobs/backend.ts';
import { S3Bucket } from '../../../host/bindings/store-process/blobs/s3.ts';
import { BucketCode } from '../../../host/runtime/bucket-code.ts';
import { CodeStore } from '../../../host/runtime/code-store.ts';

let server: Server | undefined;
let blobs: BlobBackend | undefined;

afterEach(() => {
  blobs?.close();
  server?.closeAllConnections();
  server?.close();
});

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** The blobs of a tenant at a service that answers so. */
async function at(answer: Answer, silenceMs = 300) {
  blobs = (await serve(answer, silenceMs)).blobs('t');
  return blobs;
}

async function serve(answer: Answer, silenceMs = 300): Promise<S3Bucket> {
  const opened = createServer(answer);
  server = opened;
  await new Promise<void>((resolve) => opened.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(opened.address() as AddressInfo).port}`;
  const settings = { endpoint, region: 'r', bucket: 'bucket', prefix: 'p/', accessKey: 'a', secretKey: 's' };
  return new S3Bucket(settings, silenceMs);
}

async function contentOf(of: BlobBackend, offset: number, length: number): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of await of.read('name', offset, length)) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

async function namesOf(of: BlobBackend): Promise<string[]> {
  const names: string[] = [];
  for await (const name of of.names()) names.push(name);
  return names;
}

const page = (keys: string[], more: boolean) =>
  `<?xml version="1.0"?><ListBucketResult>${more ? '<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>' : '<IsTruncated>false</IsTruncated>'}${keys
    .map((key) => `<Contents><Key>${key}</Key><Size>1</Size></Contents>`)
    .join('')}</ListBucketResult>`;

/** Sends without an end, as fast as it is taken. @returns bytes so far */
function flood(response: ServerResponse, head = ''): () => number {
  const chunk = Buffer.alloc(65_536, 'a');
  let bytes = 0;
  response.write(head);
  const more = (): void => {
    while (!response.destroyed) {
      bytes += chunk.length;
      if (!response.write(chunk)) break;
    }
  };
  response.on('drain', more);
  more();
  return () => bytes;
}

it('takes an answer to the last byte that comes before the body is known to have ended', async () => {
  const answered = Promise.withResolvers<void>();
  const of = await at((request, response) => {
    request.resume().once('end', () => response.setHeader('etag', '"e"').end());
    response.once('finish', answered.resolve);
  }, 5_000);
  async function* body() {
    yield Buffer.from('all');
    await answered.promise;
    // The answer to this comes after the other one.
    await (await fetch(`http://127.0.0.1:${((server as Server).address() as AddressInfo).port}`)).text();
  }
  await of.write('name', { length: 3, stream: body() });
});

describe('reads', () => {
  const wrong: [string, (response: ServerResponse) => void][] = [
    ['the whole object for a part', (response) => response.writeHead(200, { 'content-length': 10 }).end('0123456789')],
    [
      'another part',
      (response) => response.writeHead(206, { 'content-range': 'bytes 3-5/10', 'content-length': 3 }).end('345'),
    ],
    [
      'a longer part',
      (response) => response.writeHead(206, { 'content-range': 'bytes 2-9/10', 'content-length': 8 }).end('23456789'),
    ],
    ['a part of no length', (response) => response.writeHead(206, { 'content-range': 'bytes 2-4/10' }).end('234')],
    ['a part without an end', (response) => void flood(response.writeHead(206, { 'content-range': 'bytes 2-4/10' }))],
    ['another address', (response) => response.writeHead(302, { location: 'http://169.254.169.254/' }).end()],
    [
      'an end in the middle',
      (response) => {
        response.writeHead(206, { 'content-range': 'bytes 2-4/10', 'content-length': 3 });
        response.write('2', () => response.destroy());
      },
    ],
    ['nothing', () => undefined],
    ['an error without an end', (response) => void flood(response.writeHead(403))],
  ];
  it.each(wrong)(
    '%s is an error',
    async (_, answer) => {
      const at2 = await at((_request, response) => answer(response));
      await expect(contentOf(at2, 2, 3)).rejects.toThrow();
    },
    20_000,
  );

  it('the part that was asked for is taken', async () => {
    const part = await at((_, response) =>
      response.writeHead(206, { 'content-range': 'bytes 2-4/10', 'content-length': 3 }).end('234'),
    );
    expect(await contentOf(part, 2, 3)).toBe('234');
  });

  it('other bytes than were kept, as many, are an error before their end', async () => {
    const service = await at((_, response) =>
      response.writeHead(206, { 'content-range': 'bytes 0-2/3', 'content-length': 3 }).end('abd'),
    );
    const read = async (content: string) => {
      const part = await service.read('name', 0, 3, createHash('md5').update(content).digest('hex'));
      return Buffer.concat(await (part as Readable).toArray()).toString();
    };
    await expect(read('abc')).rejects.toThrow('something else');
    expect(await read('abd')).toBe('abd');
  });

  it('of an object that claims to be far too large nothing is read', async () => {
    let asked = 0;
    const claims = (request: IncomingMessage, response: ServerResponse) => {
      if (request.method !== 'HEAD') asked++;
      response.writeHead(200, { 'content-length': 10 * 1_024 ** 3, etag: '"e"' });
      if (request.method === 'HEAD') response.end();
      else flood(response);
    };
    const files = (await serve(claims, 20_000)).files('code');
    try {
      await expect(new BucketCode(files, { mostBytes: 1_000_000 }).get('digest')).rejects.toThrow(
        'gives 10737418240 bytes',
      );
      const assets = new SharedAssets(files);
      await expect(assets.text('t', 'lists', 'digest')).rejects.toThrow('10737418240 bytes');
      await expect(assets.check('t', 'files', 'digest')).rejects.toThrow('10737418240 bytes');
      expect(asked).toBe(0);
    } finally {
      files.close();
    }
  });

  it.each(['HEAD', 'GET'])(
    'a file that a start waits for, and that trickles to a %s, is given up with the reason',
    async (slow) => {
      const open = new Set<ServerResponse>();
      const files = (
        await serve((request, response) => {
          const [status, range] =
            request.method === 'HEAD' ? [200, {}] : [206, { 'content-range': 'bytes 0-999/1000' }];
          if (request.method !== slow) {
            response.writeHead(status, { 'content-length': 1_000, etag: '"e"', ...range }).end();
            return;
          }
          open.add(response);
          const timer = setInterval(() => {
            if (slow === 'GET') {
              if (!response.headersSent) response.writeHead(status, { 'content-length': 1_000, ...range });
              response.write(' ');
            }
          }, 20);
          response.once('close', () => {
            clearInterval(timer);
            open.delete(response);
          });
        })
      ).files('code');
      try {
        await expect(new BucketCode(files).get('digest')).rejects.toThrow('too slow with digest');
        await expect(new SharedAssets(files).check('t', 'files', 'digest')).rejects.toThrow('too slow');
        await expect.poll(() => open.size).toBe(0);
        const code = new CodeStore('/nowhere', new BucketCode(files));
        await expect(code.get('0'.repeat(64))).rejects.toMatchObject({ code: 'start_failed' });
      } finally {
        files.close();
      }
    },
  );
});

describe('writes', () => {
  it('an object that is taken before all of it was sent is an error, and is not read any further', async () => {
    const service = await at((_, response) => response.writeHead(200, { etag: '"e"' }).end());
    let produced = 0;
    async function* bytes() {
      for (; produced < 200; produced++) yield Buffer.alloc(1_048_576);
    }
    await expect(service.write('name', { length: 200 * 1_048_576, stream: bytes() })).rejects.toThrow(
      'before it had all',
    );
    expect(produced).toBeLessThan(100);
  });

  it.each<[string, (response: ServerResponse) => void]>([
    ['200 with a page of something else', (response) => response.end('<html>Welcome to the network</html>')],
    [
      '200 with an error in it',
      (response) => response.setHeader('etag', '"e"').end('<Error><Code>Lost</Code></Error>'),
    ],
    ['another address', (response) => response.writeHead(307, { location: 'http://169.254.169.254/' }).end()],
    ['an answer without an end', (response) => void flood(response)],
    ['nothing', () => undefined],
    ['a reset', (response) => response.destroy()],
  ])('%s is an error', async (_, answer) => {
    const service = await at((request, response) => request.on('end', () => answer(response)).resume());
    async function* bytes() {
      yield Buffer.from('abc');
    }
    await expect(service.write('name', { length: 3, stream: bytes() })).rejects.toThrow();
  });
});

describe('lists', () => {
  it('are read to their end', async () => {
    let pages = 0;
    const service = await at((_, response) => response.end(page([`p/t/${pages}a`, `p/t/${pages++}b`], pages < 3)));
    expect(await namesOf(service)).toEqual(['0a', '0b', '1a', '1b', '2a', '2b']);
  });

  it('pages that go round in a circle after the first are given up', async () => {
    let pages = 0;
    const service = await at((_, response) =>
      response.end(page([pages === 0 ? 'p/t/first' : `p/t/${pages % 7}`], pages++ < 10_000)),
    );
    await expect(namesOf(service)).rejects.toThrow('again and again');
    expect(pages).toBeLessThan(100);
  });

  it.each<[string, () => string]>([
    ['the same page again and again', () => page(['p/t/a', 'p/t/b'], true)],
    ['names of others', () => page(['p/u/a'], false)],
    ['deep nesting', () => '<a>'.repeat(600_000)],
    ['entities of entities', () => bomb()],
    ['an entity for a file', () => `<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>${page(['p/u/&e;'], false)}`],
    ['no XML', () => '\0\xff{}'],
  ])(
    '%s is an error, or nothing',
    async (_, body) => {
      const service = await at((_request, response) => response.end(body()), 5_000);
      const names = await namesOf(service).catch((error: unknown) => error);
      // A name that is not resolved is one that nothing has.
      if (!(names instanceof Error)) expect(['[]', '["&l12;"]']).toContain(JSON.stringify(names));
    },
    30_000,
  );

  it.each<[string, (response: ServerResponse) => () => number]>([
    ['a page', (response) => flood(response, '<ListBucketResult><Contents><Key>')],
    ['an error', (response) => flood(response.writeHead(403), '<Error>')],
  ])('%s without an end is given up after some megabytes', async (_, answer) => {
    const sent: (() => number)[] = [];
    const service = await at((_request, response) => void sent.push(answer(response)), 5_000);
    await expect(namesOf(service)).rejects.toThrow('too much');
    for (const bytes of sent) expect(bytes()).toBeLessThan(64 * 1_048_576);
  });

  it('a page that trickles is given up', async () => {
    const service = await at((_, response) => {
      const timer = setInterval(() => response.write(' '), 20);
      response.once('close', () => clearInterval(timer));
    });
    await expect(namesOf(service)).rejects.toThrow('fell silent');
  });
});

function bomb(): string {
  const levels = Array.from({ length: 12 }, (_, n) => `<!ENTITY l${n + 1} "${`&l${n};`.repeat(10)}">`).join('');
  return `<!DOCTYPE x [<!ENTITY l0 "aaaaaaaaaa">${levels}]>${page(['p/t/&l12;'], false)}`;
}
