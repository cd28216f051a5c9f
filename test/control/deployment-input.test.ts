import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { checkSlug, deploymentParser } from '../../host/control/deployment-input.ts';
import { checkNames, checkPayTo, newSettings } from '../../host/control/settings.ts';
import { configSchema } from '../../host/shared/config.ts';

const config = configSchema.parse(JSON.parse(readFileSync('config/turnpike.default.json', 'utf8')));
const parse = deploymentParser(config.runtime);
const post = (body: unknown) =>
  parse(Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)), 'application/json');

function many<T>(count: number, value: T): Record<string, T> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`N${i}`, value]));
}

async function upload(form: FormData) {
  const request = new Request('http://h/', { method: 'POST', body: form });
  return parse(new Uint8Array(await request.arrayBuffer()), request.headers.get('content-type') ?? '');
}

describe('what a tenant asks to deploy', () => {
  it('takes the least there is', async () => {
    expect(await post({ slug: 'hello', code: 'x' })).toEqual({ slug: 'hello', code: 'x' });
  });

  it('reads bindings given as true or {}', async () => {
    expect((await post({ code: 'x', bindings: { kv: true, d1: {}, r2: false } })).bindings).toEqual({
      kv: true,
      d1: true,
      r2: false,
      payments: false,
    });
  });

  it('reads bindings by names of the owner, and vars', async () => {
    const bindings = { kv: { CACHE: {}, SESSIONS: { id: 'sessions' } }, payments: { PAY: {} } };
    const vars = { GREETING: 'hi', LIMITS: { most: 3, of: ['a'] } };
    expect(await post({ code: 'x', bindings, vars })).toEqual({
      code: 'x',
      bindings: { ...bindings, d1: false, r2: false },
      vars,
    });
  });

  it('reads multipart uploads: metadata and files', async () => {
    const form = new FormData();
    form.set('metadata', JSON.stringify({ slug: 'hello', main: 'index.js' }));
    form.set('index.js', new File(['export default {}'], 'index.js'));
    form.set('lib', new File([new Uint8Array([0, 1])], 'lib.wasm'));
    const input = await upload(form);
    expect(input).toMatchObject({ slug: 'hello', main: 'index.js', modules: { 'lib.wasm': { base64: 'AAE=' } } });
  });

  it('reads metadata of an upload that is a large file', async () => {
    const secrets = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`S${i}`, 'x'.repeat(5_000)]));
    const form = new FormData();
    form.set('metadata', new File([JSON.stringify({ main: 'index.js', secrets })], 'metadata.json'));
    form.set('index.js', new File(['export default {}'], 'index.js'));
    const input = await upload(form);
    expect(Object.keys(input.secrets ?? {})).toHaveLength(20);
  });

  it.each([
    ['an empty body', '', 'invalid_json', undefined],
    ['no JSON', '{', 'invalid_json', undefined],
    ['a list', [], 'invalid_field', '/'],
    ['an unknown field', { cod: 'x' }, 'invalid_field', '/cod'],
    ['empty code', { code: '' }, 'invalid_field', '/code'],
    ['a secret that is no text', { secrets: { A: 1 } }, 'invalid_field', '/secrets/A'],
    ['a bad name of a secret', { secrets: { 'A-B': 'x' } }, 'invalid_field', '/secrets/A-B'],
    ['a secret that is too long', { secrets: { A: 'x'.repeat(5121) } }, 'invalid_field', '/secrets/A'],
    ['too many secrets', { secrets: many(65, '') }, 'invalid_field', '/secrets'],
    ['an unknown binding', { bindings: { queue: true } }, 'invalid_field', '/bindings/queue'],
    ['a name of a binding that is none', { bindings: { kv: { 'A-B': {} } } }, 'invalid_field', '/bindings/kv/A-B'],
    ['an id that leads elsewhere', { bindings: { kv: { A: { id: '../x' } } } }, 'invalid_field', '/bindings/kv/A/id'],
    [
      'a setting that a binding lacks',
      { bindings: { d1: { A: { ids: 'x' } } } },
      'invalid_field',
      '/bindings/d1/A/ids',
    ],
    [
      'an id of what keeps nothing',
      { bindings: { payments: { A: { id: 'x' } } } },
      'invalid_field',
      '/bindings/payments/A/id',
    ],
    ['too many of a kind', { bindings: { r2: many(33, {}) } }, 'invalid_field', '/bindings/r2'],
    ['a bad name of a var', { vars: { 'A-B': 'x' } }, 'invalid_field', '/vars/A-B'],
    ['too many vars', { vars: many(129, '') }, 'invalid_field', '/vars'],
    ['vars that are too long', { vars: { A: 'x'.repeat(65_536) } }, 'invalid_field', '/vars'],
    ['a date that is none', { compatibilityDate: '2026-13-01' }, 'invalid_field', '/compatibilityDate'],
    ['a payee that is none', { payTo: '0x12' }, 'invalid_field', '/payTo'],
    ['a notify URL of another kind', { notify: 'file:///etc/passwd' }, 'invalid_field', '/notify'],
    ['modules of another kind', { modules: { a: 5 } }, 'invalid_field', '/modules/a'],
    ['too many crons', { crons: Array(9).fill('* * * * *') }, 'invalid_field', '/crons'],
  ])('refuses %s and points at it', async (_what, body, code, pointer) => {
    const error = await post(body).then(
      () => undefined,
      (thrown: unknown) => thrown as { code: string; errors?: { pointer: string }[] },
    );
    expect(error?.code).toBe(code);
    if (pointer) expect(error?.errors?.map((e) => e.pointer)).toContain(pointer);
  });

  it('never repeats the value of a secret in an error', async () => {
    const canary = `canary-${'x'.repeat(6000)}`;
    const error = (await post({ secrets: { A: canary } }).catch((e: unknown) => e)) as Error;
    expect(JSON.stringify(error) + error.message).not.toContain('canary');
  });
});

describe('slugs', () => {
  it.each(['get', 'renew', 'session'])('refuses %s, whose endpoints are those of other slugs', (slug) => {
    expect(() => checkSlug(slug, [])).toThrow(/reserved/);
  });
  it.each(['abc', 'a-b', 'a'.repeat(40), '123', 'a--b'])('takes %s', (slug) => {
    expect(checkSlug(slug, [])).toBe(slug);
  });
  it.each(['', 'a', 'ab', 'a'.repeat(41), '-ab', 'ab-', 'Abc', 'a_b', 'a.b', 'ä-b', 'a b', '../x', 'a/b'])(
    'refuses %j',
    (slug) => {
      expect(() => checkSlug(slug, [])).toThrow(/slug/);
    },
  );
  it('refuses those that would be the address of a version, and none beside them', () => {
    expect(() => checkSlug('0123456789ab--hello', [])).toThrow(/slug/);
    for (const slug of ['0123456789ab-hello', '0123456789a--hello', '0123456789abc--hello', 'hello--0123456789ab'])
      expect(checkSlug(slug, [])).toBe(slug);
  });
  it('refuses reserved ones with a code of their own', () => {
    expect(() => checkSlug('pay', ['pay'])).toThrow(expect.objectContaining({ code: 'slug_reserved' }));
  });
});

it.each([
  [{ secrets: { 'A-B': 'x' } }, '/secrets/A-B is an invalid secret name: use letters'],
  [{ bindings: { kv: 'yes' } }, '/bindings/kv takes true or false, or names of your own'],
  [{ bidnings: {} }, '/bidnings is not known; /openapi.json lists the fields'],
])('says of %j what is acceptable', async (body, words) => {
  await expect(post(body)).rejects.toThrow(words);
});

it('revenue never goes to a wallet that the host pays from', () => {
  const hostWallets = [`0x${'a'.repeat(40)}`] as const;
  const settings = (payTo: string) => ({ payTo }) as never;
  expect(() => checkPayTo(settings(hostWallets[0]), { hostWallets })).toThrow(
    expect.objectContaining({ code: 'invalid_field' }),
  );
  expect(() => checkPayTo(settings(`0x${'b'.repeat(40)}`), { hostWallets })).not.toThrow();
});

describe('names in env', () => {
  const settings = (body: object) => newSettings({ ...body }, `0x${'a'.repeat(40)}`, Date.now());
  it.each([
    [{ bindings: { kv: true } }, ['STORE'], 'names STORE, which is a binding (kv) already'],
    [{ bindings: { kv: { A: {} }, d1: { A: {} } } }, [], '/bindings/d1 names A, which is a binding (kv) already'],
    [{ bindings: { kv: { A: {} } }, vars: { A: '' } }, [], '/vars/A names A'],
    [{ vars: { A: '' } }, ['A'], '/secrets names A, which is a var already'],
  ])('refuses %j with secrets %j', (body, secrets, words) => {
    expect(() => checkNames(settings(body), secrets)).toThrow(words);
  });
  it('leaves the usual names to whoever does not use them', () => {
    checkNames(settings({ bindings: { kv: { CACHE: {} } }, vars: { STORE: 'x' } }), ['DB']);
  });
});
