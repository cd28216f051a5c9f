/** Uploads that attack the bundler or the probe: each is refused with a reason, or is what it says it is, and nothing else breaks. */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { CodeStore } from '../../host/runtime/code-store.ts';
import type { CodeInput } from '../../host/runtime/deploy/code-input.ts';
import { Pipeline } from '../../host/runtime/deploy/pipeline.ts';
import { detectSandbox } from '../../host/sandbox/index.ts';

const folder = mkdtempSync(join(tmpdir(), 'dp-'));
const runFolder = join(folder, 'run');
let pipeline: Pipeline;

beforeAll(async () => {
  mkdirSync(runFolder);
  pipeline = new Pipeline({
    sandbox: await detectSandbox('auto'),
    codeStore: new CodeStore(join(folder, 'code')),
    runFolder,
    heapMb: 128,
    memoryBytes: 256 * 1_048_576,
    startTimeoutMs: 20_000,
    loadCpuMs: 1_500,
    maxBytes: 1_000_000,
    now: () => Date.now(),
  });
});
afterAll(() => {
  pipeline?.close();
  rmSync(folder, { recursive: true, force: true });
});

const options = {
  compatibilityDate: '2026-10-01',
  compatibilityFlags: [] as string[],
  crons: [] as string[],
  asker: { kind: 'host' as const },
};
const accept = (input: string | CodeInput, over: Partial<typeof options> = {}) =>
  pipeline.accept(typeof input === 'string' ? { code: input } : input, { ...options, ...over });
const GOOD = 'export default { fetch: () => new Response("hi") }';

it.each<[string, string | CodeInput, object, Partial<typeof options>?]>([
  [
    'a syntax error',
    'export default {\n  fetch( {',
    { code: 'code_rejected', errors: [{ file: 'index.ts', line: 2 }] },
  ],
  ['an endless loop at the top', 'for (;;);', { code: 'code_rejected', message: expect.stringContaining('CPU') }],
  [
    'a memory bomb at the top',
    'const a = []; for (;;) a.push(new Uint8Array(8e6).fill(1));',
    { code: 'code_rejected' },
  ],
  [
    'an exception at the top',
    '\nthrow new Error("at the top")',
    { code: 'code_rejected', errors: [{ file: 'index.ts', line: 2, column: 7 }] },
  ],
  [
    'no default export',
    'export class A {}',
    { code: 'code_rejected', message: expect.stringContaining('no default export') },
  ],
  [
    'an export that workerd does not take',
    `export const a = 1; ${GOOD}`,
    {
      code: 'code_rejected',
      message: expect.stringMatching(/^The code exports a, which is no handler, class or function.*another module\.$/),
    },
  ],
  [
    'a default without fetch',
    'export default { a: 1 }',
    { code: 'code_rejected', message: expect.stringContaining('no fetch') },
  ],
  [
    'a default that is a string',
    'export default "hi"',
    { code: 'code_rejected', message: expect.stringContaining('type string') },
  ],
  ['a default that is null', 'export default null', { code: 'code_rejected' }],
  [
    'a promise that never settles',
    'await new Promise(() => {}); export default { fetch() {} }',
    { code: 'code_rejected', message: expect.stringContaining('unsettled') },
  ],
  [
    'a request while loading',
    'await fetch("http://example.com"); export default { fetch() {} }',
    { code: 'code_rejected', message: expect.stringContaining('global scope') },
  ],
  ['a getter that never returns', 'export default { get fetch() { for (;;); } }', { code: 'code_rejected' }],
  [
    'a getter that throws',
    'export default { get fetch() { throw 1; } }',
    {
      code: 'code_rejected',
      message: expect.stringMatching(
        /^The code failed while it was loaded: Error: 1\n {2}at index\.js:\S+ in get fetch$/,
      ),
    },
  ],
  [
    'a file of the host',
    'import x from "/etc/passwd"; export default x',
    { code: 'code_rejected', errors: [{ file: 'index.ts', line: 1 }] },
  ],
  [
    'a module that is not there',
    'import x from "cloudflare:nonsense"; export default { fetch() { x } }',
    { code: 'code_rejected' },
  ],
  [
    "a module of Node's without its flag",
    "import crypto from 'crypto'; export default { fetch: () => new Response(crypto.randomUUID()) }",
    { code: 'code_rejected', message: expect.stringContaining('set the compatibility flag nodejs_compat') },
    { compatibilityDate: '2026-01-01' },
  ],
  [
    'an experimental flag',
    GOOD,
    { code: 'code_rejected', errors: [{ pointer: '/compatibilityFlags' }] },
    { compatibilityFlags: ['service_binding_extra_handlers'] },
  ],
  [
    'an unknown flag',
    GOOD,
    { code: 'code_rejected', errors: [{ pointer: '/compatibilityFlags' }] },
    { compatibilityFlags: ['no_such_flag'] },
  ],
  [
    'a date in the future',
    GOOD,
    { code: 'invalid_field', errors: [{ pointer: '/compatibilityDate' }] },
    { compatibilityDate: '2999-01-01' },
  ],
  [
    'crons without scheduled',
    GOOD,
    { code: 'code_rejected', errors: [{ pointer: '/crons' }] },
    { crons: ['* * * * *'] },
  ],
  ['too much code', `export default "${'x'.repeat(1_100_000)}"`, { code: 'code_too_large' }],
  [
    'wasm that is none',
    {
      main: 'a.js',
      modules: {
        'a.js': 'import w from "./b.wasm"; export default { fetch: () => new WebAssembly.Instance(w) }',
        'b.wasm': { base64: 'bm8gd2FzbQ==' },
      },
    },
    { code: 'code_rejected' },
  ],
  ['a name that leads out', { main: '../a.js', modules: { '../a.js': GOOD } }, { code: 'invalid_field' }],
  ['nesting without end', `export default ${'['.repeat(100_000)}`, { code: 'code_rejected' }],
])('refuses %s', async (_, input, expected, over) => {
  await expect(accept(input, over)).rejects.toMatchObject(expected);
});

it.each([
  [
    'replaced built-ins',
    'JSON.stringify = () => "{}"; Object.getPrototypeOf = undefined; globalThis.Response = class {}; Array.prototype.push = undefined;',
  ],
  ['a polluted prototype', 'Object.prototype.handlers = ["queue"]; Object.prototype.kind = "x";'],
  ['a toJSON trap', 'Array.prototype.toJSON = () => { for (;;); };'],
  [
    'setters on every object',
    'Object.defineProperty(Object.prototype, "kind", { set() { for (;;); }, get: () => 1 });',
  ],
])('sees through %s, or refuses it', async (_, trick) => {
  const outcome = await accept(`${trick} export default { fetch: () => 1 }`).then(
    ({ handlers }) => handlers,
    (error: { code: string }) => error.code,
  );
  expect([JSON.stringify(['fetch']), JSON.stringify('code_rejected')]).toContain(JSON.stringify(outcome));
});

it('still accepts good code, by an object or a class, and leaves nothing running or lying about', async () => {
  await expect(
    accept('export default { fetch: () => new Response("hi"), scheduled() {}, queue() {} }'),
  ).resolves.toMatchObject({
    handlers: ['fetch', 'scheduled', 'queue'],
  });
  await expect(
    accept(
      'import { WorkerEntrypoint } from "cloudflare:workers"; export default class extends WorkerEntrypoint { fetch() { return new Response("hi"); } }',
    ),
  ).resolves.toMatchObject({ handlers: ['fetch'] });
  // The answer does not wait for the end of the sandbox.
  await expect.poll(() => readdirSync(runFolder)).toEqual([]);
});

it('probes many at once without mixing them up', async () => {
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, index) =>
      index % 2 === 0
        ? accept(`export default { fetch: () => new Response("${index}") }`).then(({ handlers }) => handlers.join())
        : accept(`export default { scheduled() {}, n: ${index} }`).then(String, (error: Error) =>
            error.message.slice(0, 40),
          ),
    ),
  );
  expect(answers.filter((answer) => answer === 'fetch')).toHaveLength(4);
});
