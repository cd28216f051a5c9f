/**
 * Installing speech models from a publisher's server: downloads that break, files that are not what was published, and
 * archives that would write elsewhere or fill the disk. The model is that of test/speech/model, packed as published ones.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { Header } from 'tar';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { download } from '../../builtin-tenants/speech/models/download.ts';
import { installFromPath, installFromUrl, type Steps } from '../../builtin-tenants/speech/models/install.ts';
import { ModelShelf } from '../../builtin-tenants/speech/models/shelf.ts';
import { tryModel } from '../../builtin-tenants/speech/models/trial.ts';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { configSchema } from '../../host/shared/config.ts';
import { makeStreamingModel } from '../speech/harness/streaming-model.ts';
import { type ModelServer, startModelServer } from './support/model-server.ts';
import { until } from './support/until.ts';

const NAME = 'zipformer-ctc-machine-voices';
const MODELS = fileURLToPath(new URL('../speech/model', import.meta.url));
const FILE = `${NAME}.tar.bz2`;

let folder: string;
let archive: Buffer;
let server: ModelServer;
let shelf: ModelShelf;
let told: string[];
const steps: Steps = {
  signal: new AbortController().signal,
  step: (text) => told.push(text),
  progress: () => undefined,
};

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'models-'));
  execFileSync('tar', ['-C', MODELS, '-cjf', join(folder, FILE), NAME]);
  archive = readFileSync(join(folder, FILE));
});

beforeEach(async () => {
  server = await startModelServer();
  server.files.set(FILE, archive);
  shelf = new ModelShelf(mkdtempSync(join(folder, 'data-')));
  const part = join(shelf.downloads, `${FILE}.part`);
  server.taken = (bytes) => statSync(part, { throwIfNoEntry: false })?.size === bytes;
  told = [];
});

afterEach(() => server.stop());
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const checksum = (value: string) => ({ algorithm: 'sha256' as const, value });
const source = () => ({ url: `${server.url}/${FILE}`, checksum: checksum(sha256(archive)) });

describe('a download', () => {
  it('goes on where it broke off, within one command and with the next', async () => {
    server.breakAfter = [100_000, 50_000, 0, 200_000, 0, 0, 0];
    const quick = { ...source(), folder: await shelf.makeDownloads(), signal: steps.signal, pauseMs: 1 };
    const first = download({ ...quick, progress: steps.progress, notice: steps.step });
    await expect(first).rejects.toThrow(/The same command goes on where it was/);
    expect(server.ranges).toHaveLength(7);
    expect(told[0]).toMatch(/broke off/);
    server.ranges = [];

    const { path, sha256: sum } = await installFromUrl(shelf, source(), steps);
    expect(server.ranges).toEqual(['bytes=350000-']);
    expect(sum).toBe(sha256(archive));
    expect(readFileSync(join(path, 'model.int8.onnx'))).toEqual(readFileSync(join(MODELS, NAME, 'model.int8.onnx')));
    expect(readdirSync(shelf.downloads)).toEqual([]);
    expect(await shelf.list()).toEqual([NAME]);
  });

  it('begins anew where the file has changed since', async () => {
    server.breakAfter = [100_000];
    server.files.set(FILE, Buffer.concat([archive.subarray(0, 500_000), Buffer.from('another')]));
    const one = { folder: await shelf.makeDownloads(), signal: steps.signal, progress: steps.progress, pauseMs: 1 };
    await download({
      ...one,
      ...source(),
      notice: () => {
        server.files.set(FILE, archive);
      },
    });
    expect(server.ranges).toEqual(['', 'bytes=100000-']);
  });

  it('that is not the published file is refused, and removed', async () => {
    server.files.set(FILE, Buffer.concat([archive, Buffer.from('!')]));
    await expect(installFromUrl(shelf, source(), steps)).rejects.toThrow(/is not the file that was published/);
    expect(readdirSync(shelf.downloads)).toEqual([]);
    expect(await shelf.list()).toEqual([]);
  });

  it.each([
    ['404', (_, response) => response.writeHead(404).end(), /answers 404/],
    [
      'another range than asked for',
      (request, response) => {
        if (request.headers.range === undefined) {
          response.writeHead(200, { etag: '"one"', 'content-length': 1_000 });
          response.write('x'.repeat(500));
          void until(() => server.taken(500)).then(() => response.destroy());
        } else
          response
            .writeHead(206, { 'content-range': 'bytes 0-999/1000', 'content-length': 1_000 })
            .end('x'.repeat(1_000));
      },
      /another part/,
    ],
    [
      'more bytes than a disk has',
      (_, response) => void response.writeHead(200, { 'content-length': 10 ** 12 }).write('x'),
      /that is no model/,
    ],
  ] satisfies [string, NonNullable<ModelServer['instead']>, RegExp][])(
    'is refused at %s',
    async (_, instead, reason) => {
      server.instead = instead;
      await expect(installFromUrl(shelf, source(), steps)).rejects.toThrow(reason);
      expect(server.ranges.length).toBeLessThanOrEqual(2);
    },
  );

  it('from a server that falls silent ends, and is told', async () => {
    server.instead = (_, response) => void response.writeHead(200, { 'content-length': 1_000 }).write('x');
    const silent = download({
      ...source(),
      folder: await shelf.makeDownloads(),
      signal: steps.signal,
      progress: steps.progress,
      notice: steps.step,
      idleMs: 50,
      pauseMs: 1,
    });
    await expect(silent).rejects.toThrow(/Body Timeout Error\. The same command goes on/);
  });
});

interface Entry {
  path: string;
  type?: 'File' | 'Directory' | 'SymbolicLink' | 'Link' | 'CharacterDevice' | 'FIFO';
  linkpath?: string;
  /** Declared; the body is what is there. */
  size?: number;
  body?: string;
}

function tar(...entries: Entry[]): Buffer {
  const blocks = entries.flatMap(({ path, type = 'File', linkpath, body = '', size = body.length }) => {
    const header = new Header({ path, type, mode: 0o644, size, ...(linkpath === undefined ? {} : { linkpath }) });
    const block = Buffer.alloc(512);
    header.encode(block, 0);
    return [block, Buffer.from(body), Buffer.alloc((512 - (body.length % 512)) % 512)];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1_024)]);
}

describe('an archive', () => {
  const tokens: Entry = { path: 'm/tokens.txt', body: 'a 1\n' };
  const model: Entry = { path: 'm/model.onnx', body: 'x' };

  async function install(bytes: Buffer, name = 'm.tar'): Promise<string> {
    const file = join(mkdtempSync(join(folder, 'archive-')), name);
    writeFileSync(file, bytes);
    return installFromPath(shelf, file, steps);
  }

  it('of a model is unpacked, whatever it is packed with', async () => {
    for (const [name, bytes] of [
      ['m.tar', tar(tokens, model)],
      ['n.tar.gz', gzipSync(tar(tokens, model))],
    ] as const) {
      expect(readdirSync(await install(bytes, name)).sort()).toEqual(['model.onnx', 'tokens.txt']);
    }
    // Some hold the files without a folder.
    await install(tar({ path: 'tokens.txt', body: 'a 1\n' }, { path: 'model.onnx', body: 'x' }), 'bare.tar');
    expect(await shelf.list()).toEqual(['bare', 'm', 'n']);
  });

  it.each<[string, Entry[], RegExp]>([
    ['leaves the folder', [{ path: '../out.txt', body: 'x' }], /leads out of it/],
    ['leaves it on the way', [{ path: 'm/../../out.txt', body: 'x' }], /leads out of it/],
    ['is absolute', [{ path: '/tmp/out.txt', body: 'x' }], /leads out of it/],
    ['holds a link', [{ path: 'm/tokens.txt', type: 'SymbolicLink', linkpath: '/etc/passwd' }], /is a SymbolicLink/],
    ['holds a hard link', [{ path: 'm/tokens.txt', type: 'Link', linkpath: '/etc/passwd' }], /is a Link/],
    ['holds a device', [{ path: 'm/tokens.txt', type: 'CharacterDevice' }], /is a CharacterDevice/],
    ['holds a pipe', [{ path: 'm/tokens.txt', type: 'FIFO' }], /is a FIFO/],
    ['says it is larger than the disk', [{ path: 'm/model.onnx', size: 7 * 10 ** 12 }], /that the disk has to spare/],
    ['nests deeply', [{ path: `${'a/'.repeat(40)}tokens.txt`, body: 'x' }], /refused|no tokens\.txt/],
    ['holds no model', [{ path: 'm/readme.txt', body: 'x' }], /no tokens\.txt/],
  ])('that %s is refused, and leaves nothing', async (_, entries, reason) => {
    await expect(install(tar(...entries))).rejects.toThrow(reason);
    expect(readdirSync(shelf.folder)).toEqual([]);
    expect(existsSync(join(folder, 'out.txt'))).toBe(false);
    expect(existsSync('/tmp/out.txt')).toBe(false);
  });

  it('with too many files is refused', async () => {
    const many = Array.from({ length: 2_001 }, (_, index) => ({ path: `m/${index}` }));
    await expect(install(gzipSync(tar(...many)), 'many.tar.gz')).rejects.toThrow(/more than 2000 files/);
    expect(readdirSync(shelf.folder)).toEqual([]);
  });

  it('that is broken, or none, is refused', async () => {
    await expect(install(archive.subarray(0, 400_000), 'cut.tar.bz2')).rejects.toThrow(/is broken: bzip2/);
    await expect(install(Buffer.from('<html>not found</html>'), 'page.tar.bz2')).rejects.toThrow(/refused|empty/);
    await expect(install(Buffer.alloc(0), 'empty.tar')).rejects.toThrow(/Unrecognized archive format/);
    await expect(install(Buffer.from('x'), 'song.mp3')).rejects.toThrow(/is no model/);
    expect(readdirSync(shelf.folder)).toEqual([]);
  });

  it('of another name than its folder takes the place of an earlier one', async () => {
    await install(tar(tokens, model), 'zipformer.tar');
    const path = await install(tar({ ...tokens, body: 'b 1\n' }, model), 'zipformer.tar');
    expect(readFileSync(join(path, 'tokens.txt'), 'utf8')).toBe('b 1\n');
    expect(await shelf.list()).toEqual(['zipformer']);
  });
});

it('a folder is copied without its links', async () => {
  const own = join(mkdtempSync(join(folder, 'own-')), 'own-model');
  mkdirSync(own);
  writeFileSync(join(own, 'tokens.txt'), 'a 1\n');
  writeFileSync(join(own, 'model.onnx'), 'x');
  symlinkSync('/etc/passwd', join(own, 'secrets.txt'));
  expect(readdirSync(await installFromPath(shelf, own, steps)).sort()).toEqual(['model.onnx', 'tokens.txt']);
});

it('a model that streams is installed, and tried, as any other', async () => {
  const path = await installFromPath(shelf, makeStreamingModel(folder), steps);
  const { speech } = configSchema.parse(defaults);
  expect(await tryModel(path, speech, steps.signal)).toMatchObject({ transcript: expect.stringMatching(/\w/) });
});

it('a model that cannot be loaded is told by its trial', async () => {
  const broken = join(mkdtempSync(join(folder, 'broken-')), 'broken-zipformer');
  mkdirSync(broken);
  writeFileSync(join(broken, 'tokens.txt'), 'a 1\n');
  writeFileSync(join(broken, 'model.onnx'), 'x');
  const { speech } = configSchema.parse(defaults);
  await expect(tryModel(broken, speech, steps.signal)).rejects.toThrow(/cannot be loaded as zipformer-ctc/);
});
