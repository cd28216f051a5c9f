/** Everything that is expected of R2 on every backend. */
import { mkdirSync } from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { callR2, callSocket, caseNames, type RigOptions, StorageRig, TENANT } from './storage-rig.ts';

const names = await caseNames('r2');

/** @param options what to start the rig with; asked when the suite begins */
export function r2Suite(options: () => Promise<RigOptions>): void {
  let rig: StorageRig;
  beforeAll(async () => {
    rig = await StorageRig.start(await options());
  });
  afterAll(() => rig?.stop());

  const call = (request: Record<string, unknown>, value?: Buffer) =>
    callR2(join(rig.sockets, 'r2.sock'), request, value);

  for (const name of names)
    test(name, async () => {
      const response = await rig.fetch(`/case/r2/${encodeURIComponent(name)}`);
      expect(await response.text()).toBe('ok');
    });

  test('the wire: put and get frame their JSON before the value', async () => {
    const value = Buffer.from('über');
    const put = await call({ method: 'put', object: 'wire/ü', customFields: [{ k: 'ä', v: 'ö' }] }, value);
    expect(put.json).toMatchObject({ name: 'wire/ü', size: 5, customFields: [{ k: 'ä', v: 'ö' }] });
    const get = await call({ method: 'get', object: 'wire/ü', range: { offset: '1', length: '2' } });
    expect(get.json).toMatchObject({ name: 'wire/ü', size: 5, etag: put.json.etag, range: { offset: 1, length: 2 } });
    expect(get.value).toEqual(value.subarray(1, 3));
  });

  test.each([
    ['nothing is there', { method: 'get', object: 'nowhere' }, 404, 10007],
    ['a name that is too long', { method: 'put', object: 'x'.repeat(1025) }, 400, 10020],
    ['a cursor that no list gave', { method: 'list', cursor: 'x' }, 400, 10029],
    ['an unknown method', { method: 'rename', object: 'x' }, 400, 10029],
    ['a field of the wrong type', { method: 'put', object: 5 }, 400, 10029],
    ['a checksum of the wrong length', { method: 'put', object: 'x', sha1: 'abcd' }, 400, 10029],
    ['a limit of halves', { method: 'list', limit: 1.5 }, 400, 10029],
    ['an offset of halves', { method: 'get', object: 'x', range: { offset: 0.5 } }, 400, 10029],
    ['a delete of nothing', { method: 'delete' }, 400, 10029],
    ['a part number of none', { method: 'uploadPart', object: 'x', uploadId: 'y', partNumber: 0 }, 400, 10029],
    ['an unknown upload', { method: 'abortMultipartUpload', object: 'x', uploadId: 'y' }, 404, 10024],
  ])('the wire refuses: %s', async (_, request, status, code) => {
    const answer = await call(request, Buffer.alloc(300_000));
    expect([answer.status, answer.error?.v4code]).toEqual([status, code]);
  });

  test('the wire refuses requests without or with broken JSON', async () => {
    const socket = join(rig.sockets, 'r2.sock');
    const bad: [string, Record<string, string>][] = [
      ['GET', {}],
      ['GET', { 'CF-R2-Request': '{' }],
      ['PUT', {}],
      ['PUT', { 'CF-R2-Metadata-Size': '-1' }],
      ['PUT', { 'CF-R2-Metadata-Size': '999999999' }],
      ['PUT', { 'CF-R2-Metadata-Size': '100' }],
      ['DELETE', {}],
    ];
    for (const [method, headers] of bad) {
      const answer = await callSocket(socket, '/', {
        method,
        headers,
        ...(method === 'PUT' ? { body: Buffer.from('{}') } : {}),
      });
      expect([method, answer.status, JSON.parse(String(answer.headers['cf-r2-error'])).v4code]).toEqual([
        method,
        400,
        10029,
      ]);
    }
  });

  test('the wire: a plain GET answers a whole object, with ASCII metadata in a field, or refuses', async () => {
    const socket = join(rig.sockets, 'r2.sock');
    const object = 'wire/ü &#%';
    await call({ method: 'put', object, customFields: [{ k: 'ä', v: 'ö\u007f' }] }, Buffer.from('über'));
    const whole = await callSocket(socket, `/?get=${encodeURIComponent(object)}`);
    expect([whole.status, whole.body.toString(), whole.headers['cf-r2-metadata-size']]).toEqual([
      200,
      'über',
      undefined,
    ]);
    const field = String(whole.headers['x-turnpike-object']);
    expect(field).toMatch(/^[\x20-\x7e]+$/);
    expect(JSON.parse(field)).toMatchObject({ name: object, size: 5, customFields: [{ k: 'ä', v: 'ö\u007f' }] });
    const refused: [string, number, number][] = [
      ['/?get=missing', 404, 10007],
      ['/?get=', 404, 10007],
      [`/?get=${'x'.repeat(1025)}`, 400, 10020],
      ['/?get=%zz', 400, 10029],
      ['/?get=%ff', 400, 10029],
      ['/?get=a&get=b', 400, 10029],
      ['/?put=a', 400, 10029],
      ['/other?get=a', 400, 10029],
    ];
    for (const [target, status, code] of refused) {
      const answer = await callSocket(socket, target);
      const error = JSON.parse(String(answer.headers['cf-r2-error'])) as { v4code: number };
      expect([target, answer.status, error.v4code]).toEqual([target, status, code]);
    }
  });

  test('the wire refuses a body that is not as long as it says', async () => {
    const json = JSON.stringify({ version: 1, method: 'put', object: 'smuggled' });
    const answer = await new Promise<string>((resolve, reject) => {
      const socket = connect(join(rig.sockets, 'r2.sock'), () => {
        const body = `${json}more than was said`;
        socket.write(
          `PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nCF-R2-Metadata-Size: ${json.length}\r\n` +
            `Content-Length: ${json.length + 3}\r\nTransfer-Encoding: chunked\r\n\r\n` +
            `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
        );
      });
      let text = '';
      socket.on('data', (chunk) => {
        text += chunk;
      });
      socket.on('end', () => resolve(text));
      socket.on('error', reject);
    });
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect((await call({ method: 'head', object: 'smuggled' })).status).toBe(404);
  });

  test('past the quota nothing is stored; deleting and aborting make room', async () => {
    const tenant = 't00000000000000000009';
    const folder = join(rig.folder, 'quota');
    mkdirSync(folder);
    await rig.open(tenant, folder, { ...rig.quotas, objectBytes: 1_000_000 });
    const socket = join(folder, 'r2.sock');
    const put = async (object: string, size: number) =>
      (await callR2(socket, { method: 'put', object }, Buffer.alloc(size, 1))).error?.v4code ?? 'ok';
    expect(await put('a', 600_000)).toBe('ok');
    expect(await put('b', 600_000)).toBe(10507);
    expect(await put('b', 2_000_000)).toBe(10507);
    expect(await put('a', 900_000)).toBe('ok');
    const usage = () => rig.usage(tenant);
    expect(await usage()).toMatchObject({ objects: 1, objectBytes: 900_001 });
    await callR2(socket, { method: 'delete', object: 'a' });
    const { uploadId } = (await callR2(socket, { method: 'createMultipartUpload', object: 'm' })).json;
    const part = { method: 'uploadPart', object: 'm', uploadId, partNumber: 1 };
    expect((await callR2(socket, part, Buffer.alloc(700_000))).error).toBeUndefined();
    expect((await callR2(socket, { ...part, partNumber: 2 }, Buffer.alloc(700_000))).error?.v4code).toBe(10507);
    expect(await usage()).toMatchObject({ objects: 0, objectBytes: 700_001 + 2 * 256 });
    expect(await put('b', 600_000)).toBe(10507);
    await callR2(socket, { method: 'abortMultipartUpload', object: 'm', uploadId });
    expect(await usage()).toMatchObject({ objects: 0, objectBytes: 0 });
    expect(await put('b', 600_000)).toBe('ok');
    await rig.channel.call('purge', { tenant });
    expect(await usage()).toMatchObject({ objects: 0, objectBytes: 0 });
  });

  test('an upload that nobody completes ends after seven days', async () => {
    const { uploadId } = (await call({ method: 'createMultipartUpload', object: 'stale' })).json;
    await call({ method: 'uploadPart', object: 'stale', uploadId, partNumber: 1 }, Buffer.alloc(500_000));
    const before = await rig.usage(TENANT);
    await rig.channel.call('setClock', { offsetMs: 7 * 86_400_000 + 1000 });
    await expect
      .poll(async () => (await rig.usage(TENANT)).objectBytes)
      .toBeLessThanOrEqual(before.objectBytes - 500_000);
    await rig.channel.call('setClock', { offsetMs: 0 });
    const late = await call({ method: 'uploadPart', object: 'stale', uploadId, partNumber: 2 }, Buffer.alloc(1));
    expect(late.error?.v4code).toBe(10024);
  });

  test('uploads that have ended are not remembered without end, and empty parts count', async () => {
    const create = async () => (await call({ method: 'createMultipartUpload', object: 'ended' })).json.uploadId;
    const abort = async (uploadId: string) =>
      (await call({ method: 'abortMultipartUpload', object: 'ended', uploadId })).error?.v4code;
    const first = await create();
    const before = await rig.usage(TENANT);
    for (const partNumber of [1, 2, 3])
      await call({ method: 'uploadPart', object: 'ended', uploadId: first, partNumber }, Buffer.alloc(0));
    const after = await rig.usage(TENANT);
    expect(after.objectBytes - before.objectBytes).toBeGreaterThan(3 * 100);
    await abort(first);
    const ids = await Promise.all(Array.from({ length: 1000 }, create));
    expect(await abort(first)).toBeUndefined();
    await Promise.all(ids.map(abort));
    expect([await abort(first), await abort(ids[999])]).toEqual([10024, undefined]);
  });

  test('calls past the cap wait their turn; only past a long queue they are refused', async () => {
    const tenant = 't00000000000000000008';
    const folder = join(rig.folder, 'cap');
    mkdirSync(folder);
    await rig.open(tenant, folder, { ...rig.quotas, requestsInFlight: 2 });
    const socket = join(folder, 'r2.sock');
    const put = (i: number) => callR2(socket, { method: 'put', object: `k${i}` }, Buffer.alloc(400_000));
    const waited = await Promise.all(Array.from({ length: 20 }, (_, i) => put(i)));
    expect(waited.map(({ error }) => error)).toEqual(waited.map(() => undefined));

    // Bodies that do not come hold both places; 16 calls may wait for each.
    const head = { 'CF-R2-Metadata-Size': '100', 'Content-Length': '100' };
    const begun = Array.from({ length: 2 }, () =>
      request({ socketPath: socket, path: '/', method: 'PUT', headers: head }),
    );
    for (const one of begun) {
      one.on('error', () => {});
      one.flushHeaders();
    }
    const queue = Array.from({ length: 40 }, (_, i) => put(i));
    const first = await Promise.race(queue);
    expect(first.error?.v4code).toBe(10058);
    for (const one of begun) one.destroy();
    const codes = (await Promise.all(queue)).map(({ error }) => error?.v4code ?? 'ok');
    expect(codes.filter((code) => code === 'ok').length).toBeGreaterThanOrEqual(30);
    await rig.channel.call('purge', { tenant });
  });
}
