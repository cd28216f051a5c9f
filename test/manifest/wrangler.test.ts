import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { bindingsSchema } from '../../host/bindings/index.ts';
import { manifestSchema } from '../../host/manifest/project-manifest.ts';
import { readWrangler, WranglerFault, type WranglerOptions } from '../../host/manifest/wrangler.ts';
import { FORMER_KEYS, WRANGLER_KEYS } from '../../host/manifest/wrangler-keys.ts';

/** Names of keys in wrangler's config-schema.json. */
const schema = JSON.parse(readFileSync(new URL('wrangler-keys.json', import.meta.url), 'utf8')) as {
  top: string[];
  environment: string[];
  members: Record<string, string[]>;
};

const read = (config: unknown, options: WranglerOptions = {}) =>
  readWrangler(JSON.stringify(config, null, 1), 'wrangler.json', options);
const toml = (text: string, options: WranglerOptions = {}) => readWrangler(text, 'wrangler.toml', options);
const refusedKeys = (config: unknown, options?: WranglerOptions) => read(config, options).refused.map(({ key }) => key);
const ignoredKeys = (config: unknown, options?: WranglerOptions) => read(config, options).ignored.map(({ key }) => key);

function fault(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(WranglerFault);
    return (error as Error).message;
  }
  throw new Error('It was taken.');
}

const faultOf = (config: unknown, options?: WranglerOptions) => fault(() => read(config, options));

describe('the table of keys', () => {
  test('has every key of the schema, and no other', () => {
    const known = [...WRANGLER_KEYS.keys()].filter((name) => !FORMER_KEYS.has(name));
    expect(known.sort()).toEqual([...schema.top, ...schema.environment].sort());
    for (const name of schema.top) expect([name, WRANGLER_KEYS.get(name)?.scope]).toEqual([name, 'top']);
    for (const name of schema.environment) expect([name, WRANGLER_KEYS.get(name)?.scope]).not.toEqual([name, 'top']);
  });

  test('has every member, where it has members', () => {
    for (const [name, { members }] of WRANGLER_KEYS) {
      if (members) expect([name, ...Object.keys(members).sort()]).toEqual([name, ...schema.members[name]!.sort()]);
    }
  });

  test('says why a key is ignored or refused, and what to do next', () => {
    const rows = [...WRANGLER_KEYS].flatMap(([name, key]) => [
      [name, key] as const,
      ...Object.entries(key.members ?? {}).map(([member, inner]) => [`${name}.${member}`, inner] as const),
    ]);
    for (const [name, { use, reason = '' }] of rows) {
      if (use === 'ignored') expect([name, reason]).toEqual([name, expect.stringMatching(/^["a-zA-Z].{10,}[^.]$/)]);
      if (use === 'refused')
        expect([name, reason]).toEqual([name, expect.stringMatching(/^[a-zA-Z].*\b(R|r)emove.*\.$/)]);
    }
  });

  test.each([...WRANGLER_KEYS].filter(([, { use }]) => use === 'refused'))(
    '%s is refused, with its place',
    (name, key) => {
      const value = key.parts ? Object.fromEntries(key.parts.map((part) => [part, []])) : {};
      const given = samples[name] ?? { binding: 'X' };
      const { refused } = read({ [name]: given });
      expect(refused.length).toBeGreaterThan(0);
      for (const one of refused) {
        expect(one).toEqual({
          key: expect.stringMatching(`^${name}\\b`),
          file: 'wrangler.json',
          line: expect.any(Number),
          reason: key.reason,
        });
      }
      expect(refusedKeys({ [name]: value })).toEqual([]);
      expect(refusedKeys({ [name]: given }, { offered: new Set([name]) })).toEqual([]);
      if (key.scope === 'top') return;
      expect(refusedKeys({ env: { staging: { [name]: given } } })).toEqual([]);
      const [first] = refusedKeys({ env: { staging: { [name]: given } } }, { environment: 'staging' });
      expect(first).toMatch(new RegExp(`^env\\.staging\\.${name}\\b`));
    },
  );
});

/** What a refused key may hold, where it is not one binding. */
const samples: Record<string, unknown> = {
  assets: { directory: './public' },
  compliance_region: 'fedramp_high',
  durable_objects: {
    bindings: [
      { name: 'ROOM', class_name: 'Room' },
      { name: 'GAME', class_name: 'Game' },
    ],
  },
  hyperdrive: [{ binding: 'DB', id: '1' }],
  migrations: [{ tag: 'v1', new_sqlite_classes: ['Room'] }],
  node_compat: true,
  pages_build_output_dir: './dist',
  queues: { producers: [{ binding: 'Q', queue: 'q' }], consumers: [{ queue: 'q', max_batch_size: 5 }] },
  ratelimits: [{ name: 'LIMIT', namespace_id: '1', simple: { limit: 10, period: 60 } }],
  services: [{ binding: 'OTHER', service: 'other' }],
  workflows: [{ binding: 'FLOW', name: 'flow', class_name: 'Flow' }],
};

describe('a project', () => {
  test('in JSON with comments and trailing commas', () => {
    const project = readWrangler(
      `\uFEFF// The handler.
      {
        "$schema": "node_modules/wrangler/config-schema.json",
        "name": "my_worker", /* as at Cloudflare */
        "main": "src/index.ts",
        "compatibility_date": "2026-01-01",
        "compatibility_flags": ["nodejs_compat"],
        "vars": { "GREETING": "hello", "LIMITS": { "most": [1, null, true] }, },
        "secrets": { "required": ["API_KEY"] },
        "triggers": { "crons": ["*/5 * * * *", "0 0 ? * SUN"] },
        "kv_namespaces": [
          { "binding": "SESSIONS", "id": "0f2ac74b498b48028cb68387c421e279", "preview_id": "x" },
          { "binding": "CACHE" },
        ],
        "d1_databases": [
          {
            "binding": "DB",
            "database_name": "orders",
            "database_id": "a1b2c3d4-0000-4000-8000-1234567890ab",
            "migrations_dir": "sql",
            "migrations_table": "done",
          },
        ],
        "r2_buckets": [{ "binding": "FILES", "bucket_name": "files", "jurisdiction": "eu" }],
      }`,
      'wrangler.jsonc',
      {},
    );
    expect(project.manifest).toEqual({
      slug: 'my-worker',
      entry: 'src/index.ts',
      compatibilityDate: '2026-01-01',
      compatibilityFlags: ['nodejs_compat'],
      vars: { GREETING: 'hello', LIMITS: { most: [1, null, true] } },
      crons: ['*/5 * * * *', '0 0 ? * SUN'],
      bindings: {
        kv: { SESSIONS: { id: '0f2ac74b498b48028cb68387c421e279' }, CACHE: {} },
        d1: { DB: { id: 'a1b2c3d4-0000-4000-8000-1234567890ab' } },
        r2: { FILES: { id: 'files' } },
      },
    });
    expect(bindingsSchema.parse(project.manifest.bindings)).toEqual(project.manifest.bindings);
    const { vars: _, ...others } = project.manifest;
    expect(manifestSchema.parse(others)).toEqual(others);
    expect(project.d1).toEqual({ DB: { databaseName: 'orders', migrationsDir: 'sql', migrationsTable: 'done' } });
    expect(project.secretNames).toEqual(['API_KEY']);
    expect(project.refused).toEqual([]);
    expect(project.ignored.map(({ key }) => key)).toEqual([
      '$schema',
      'kv_namespaces[].preview_id',
      'r2_buckets[].jurisdiction',
    ]);
  });

  test('in TOML, with how it is bundled', () => {
    const project = toml(`
      name = "api"
      main = "src/index.js"
      compatibility_date = "2026-01-01"
      no_bundle = false
      minify = true
      keep_names = false
      find_additional_modules = true
      base_dir = "src"
      tsconfig = "tsconfig.worker.json"
      jsx_factory = "h"
      workers_dev = true
      [vars]
      PORT = 8080
      [build]
      command = "npm run build"
      cwd = "web"
      watch_dir = "web/src"
      [[rules]]
      type = "Text"
      globs = ["**/*.html"]
      fallthrough = true
      [alias]
      react = "preact/compat"
      [define]
      VERSION = "'1'"
      [[kv_namespaces]]
      binding = "KV"
      id = "one"
    `);
    expect(project.manifest).toEqual({
      slug: 'api',
      entry: 'src/index.js',
      compatibilityDate: '2026-01-01',
      vars: { PORT: 8080 },
      bindings: { kv: { KV: { id: 'one' } } },
    });
    expect(project.build).toEqual({
      noBundle: false,
      rules: [{ type: 'Text', globs: ['**/*.html'], fallthrough: true }],
      alias: { react: 'preact/compat' },
      define: { VERSION: "'1'" },
      minify: true,
      keepNames: false,
      findAdditionalModules: true,
      baseDir: 'src',
      tsconfig: 'tsconfig.worker.json',
      jsxFactory: 'h',
      command: 'npm run build',
      cwd: 'web',
    });
    expect(project.ignored.map(({ key }) => key).sort()).toEqual(['build.watch_dir', 'workers_dev']);
  });

  test('that says nothing asks for nothing', () => {
    const nothing = {
      manifest: {},
      build: { noBundle: false, rules: [], alias: {}, define: {} },
      d1: {},
      features: {},
      secretNames: [],
      refused: [],
      ignored: [],
    };
    expect(read({})).toEqual(nothing);
    expect(toml('')).toEqual(nothing);
    // As build tools write it.
    const empty = { bindings: [] };
    const written = { name: null, durable_objects: empty, logfwdr: empty, queues: { producers: [], consumers: [] } };
    expect(
      read({ ...written, ai_search: [], unsafe: {}, first_party_worker: false, migrations: [], triggers: {} }),
    ).toEqual(nothing);
  });

  test.each([
    [{ triggers: { crons: [] } }, []],
    [{ triggers: { crons: null } }, undefined],
    [{ triggers: null }, undefined],
    [{ triggers: {} }, undefined],
  ])('crons of %j', (config, crons) => {
    expect(read(config).manifest.crons).toEqual(crons);
  });

  test.each(['ab', 'a'.repeat(41), '-ab', 'über'])('the name %s is no slug', (name) => {
    const project = read({ name });
    expect(project.manifest.slug).toBeUndefined();
    expect(project.ignored).toEqual([{ key: 'name', reason: expect.stringContaining('--slug') }]);
  });

  test('in Python is refused', () => {
    expect(refusedKeys({ main: 'src/entry.py' })).toEqual(['main']);
  });
});

describe('ids of stores', () => {
  test.each([
    '',
    '<YOUR_ID>',
    'xxxx',
    'your-kv-id',
    'YOUR_ID_HERE',
    '00000000-0000-0000-0000-000000000000',
    'TODO',
    'replace-me',
    'a/b',
  ])('%j is a placeholder, or cannot be one', (id) => {
    expect(read({ kv_namespaces: [{ binding: 'KV', id }] }).manifest.bindings).toEqual({ kv: { KV: {} } });
    const database = { binding: 'DB', database_id: id, database_name: 'todo-list' };
    expect(read({ d1_databases: [database] }).manifest.bindings).toEqual({ d1: { DB: { id: 'todo-list' } } });
  });

  test.each(['my-bucket', 'exchange-index', 'todo-list', 'yours', '0f2ac74b498b48028cb68387c421e279', 'a.b_c-1'])(
    '%s is one',
    (id) => {
      expect(read({ r2_buckets: [{ binding: 'FILES', bucket_name: id }] }).manifest.bindings).toEqual({
        r2: { FILES: { id } },
      });
    },
  );

  test('two bindings with one id share a store', () => {
    const kv_namespaces = [
      { binding: 'A', id: 'one' },
      { binding: 'B', id: 'one' },
    ];
    expect(read({ kv_namespaces }).manifest.bindings).toEqual({ kv: { A: { id: 'one' }, B: { id: 'one' } } });
  });
});

describe('environments', () => {
  const config = {
    name: 'api',
    main: 'src/index.ts',
    compatibility_date: '2026-01-01',
    compatibility_flags: ['nodejs_compat'],
    minify: true,
    alias: { a: 'b' },
    vars: { A: 'top' },
    define: { D: '1' },
    kv_namespaces: [{ binding: 'KV', id: 'top' }],
    queues: { producers: [{ binding: 'Q', queue: 'q' }] },
    triggers: { crons: ['0 * * * *'] },
    observability: { enabled: true },
    env: {
      staging: {
        vars: { A: 'staging' },
        main: 'src/staging.ts',
        alias: { a: 'c' },
        observability: { enabled: true, logs: { enabled: true } },
        queues: { producers: [{ binding: 'Q', queue: 'q-staging' }] },
      },
      production: { name: 'api-live', triggers: { crons: [] }, kv_namespaces: [{ binding: 'KV', id: 'live' }] },
      broken: 1,
    },
  };

  test('inherit what wrangler lets them inherit', () => {
    const staging = read(config, { environment: 'staging' });
    expect(staging.manifest).toEqual({
      slug: 'api-staging',
      entry: 'src/staging.ts',
      compatibilityDate: '2026-01-01',
      compatibilityFlags: ['nodejs_compat'],
      bindings: { queues: { Q: { queue: 'q-staging' } } },
      vars: { A: 'staging' },
      crons: ['0 * * * *'],
    });
    expect(staging.build).toEqual({ noBundle: false, rules: [], alias: { a: 'b' }, define: {}, minify: true });
    expect(staging.refused).toEqual([
      {
        key: 'env.staging.queues.producers[0]',
        file: 'wrangler.json',
        line: expect.any(Number),
        reason: expect.any(String),
      },
    ]);
    expect(staging.ignored).toEqual([
      { key: 'define', reason: expect.stringContaining('env.staging has none') },
      { key: 'kv_namespaces', reason: expect.stringContaining('environments do not inherit it') },
      { key: 'env.staging.alias', reason: 'wrangler reads it at the top level only' },
      { key: 'env.staging.observability', reason: expect.any(String) },
    ]);
  });

  test('have a name, crons and bindings of their own', () => {
    const { manifest } = read(config, { environment: 'production' });
    expect(manifest).toMatchObject({ slug: 'api-live', crons: [], bindings: { kv: { KV: { id: 'live' } } } });
    expect(manifest.vars).toBeUndefined();
  });

  test('the top level counts without one', () => {
    const top = read(config, { environment: '' });
    expect(top).toEqual(read(config));
    expect(top.manifest).toMatchObject({ slug: 'api', vars: { A: 'top' }, bindings: { kv: { KV: { id: 'top' } } } });
    expect(top.ignored.map(({ key }) => key)).toEqual(['observability']);
  });

  test('that are not there are faults, with those that are', () => {
    expect(faultOf(config, { environment: 'prod' })).toMatch(
      /^wrangler\.json:\d+: env: has no environment prod; there are: staging, production, broken$/,
    );
    expect(faultOf({}, { environment: 'prod' })).toMatch(/there are none/);
    expect(faultOf(config, { environment: 'constructor' })).toMatch(/no environment constructor/);
    expect(faultOf(config, { environment: 'broken' })).toMatch(/env\.broken: expected an object/);
  });
});

describe('what the host may have', () => {
  test('is refused by its parts', () => {
    expect(refusedKeys(samples)).not.toContain('hyperdrive');
    expect(read({ hyperdrive: samples.hyperdrive }).manifest.bindings).toEqual({ hyperdrive: { DB: {} } });
    expect(read({ images: { binding: 'IMAGES' } }).refused).toEqual([
      { key: 'images', file: 'wrangler.json', line: 2, reason: expect.stringContaining('Cloudflare Images') },
    ]);
    expect(toml('[images]\nbinding = "IMAGES"').refused).toEqual([
      { key: 'images', file: 'wrangler.toml', reason: expect.stringContaining('remove it from the file') },
    ]);
  });

  test.each([
    ['send_email', [{ name: 'MAIL' }], 'email', 'mail service'],
    ['browser', { binding: 'BROWSER' }, 'browser', 'Browser Rendering'],
    ['vectorize', [{ binding: 'V', index_name: 'i' }], 'vectorize', 'database of vectors'],
    ['images', { binding: 'IMAGES' }, 'images', 'transform them in the code'],
  ])('%s is refused by name, and so it is in a manifest and a deploy body', (key, given, binding, why) => {
    const [refused] = read({ [key]: given }).refused;
    expect(refused).toMatchObject({ key, reason: expect.stringContaining(why) });
    for (const found of [
      bindingsSchema.safeParse({ [binding]: { X: {} }, kv: true }),
      manifestSchema.safeParse({ bindings: { [binding]: true } }),
    ]) {
      expect(found.error?.issues[0]?.message).toMatch(`${binding} is not on this host`);
      expect(found.error?.issues[0]?.message).toMatch(why);
    }
  });

  test('datasets, tail workers and models have what their bindings say', () => {
    const { manifest, refused, ignored } = read({
      name: 'own',
      analytics_engine_datasets: [{ binding: 'VISITS', dataset: 'visits', remote: true }, { binding: 'OTHER' }],
      tail_consumers: [{ service: 'my_logger' }, { service: 'second-one', environment: 'live' }],
      ai: { binding: 'AI', remote: true },
    });
    expect(refused).toEqual([]);
    expect(manifest.bindings).toEqual({
      analytics: { VISITS: { dataset: 'visits' }, OTHER: {} },
      tails: { tail_my_logger: { service: 'my-logger' }, tail_second_one: { service: 'second-one' } },
      ai: { AI: {} },
    });
    expect(bindingsSchema.parse(manifest.bindings)).toEqual(manifest.bindings);
    expect(ignored.map(({ key }) => key).sort()).toEqual([
      'ai.remote',
      'analytics_engine_datasets[].remote',
      'tail_consumers[].environment',
    ]);
    expect(faultOf({ ai: { binding: 'X' }, analytics_engine_datasets: [{ binding: 'X' }] })).toMatch(
      /X is the name of/,
    );
    const reserved = bindingsSchema.safeParse({ analytics: { sqlite_x: {} } });
    expect(reserved.error?.issues[0]?.message).toMatch(/no dataset may have/);
  });

  test('classes of Durable Objects keep the id of their first name', () => {
    const step = (tag: string, more: object) => ({ tag, ...more });
    const { manifest, refused } = read({
      name: 'own',
      durable_objects: {
        bindings: [
          { name: 'ROOMS', class_name: 'Hall', script_name: 'own' },
          { name: 'OLD', class_name: 'Plain' },
          { name: 'AGAIN', class_name: 'Gone' },
          { name: 'NEW', class_name: 'Undeclared' },
        ],
      },
      migrations: [
        step('v1', { new_sqlite_classes: ['Room', 'Gone'], new_classes: ['Plain'] }),
        step('v2', { renamed_classes: [{ from: 'Room', to: 'Lobby' }], deleted_classes: ['Gone'] }),
        step('v3', { renamed_classes: [{ from: 'Lobby', to: 'Hall' }], new_sqlite_classes: ['Gone'] }),
      ],
    });
    expect(refused).toEqual([]);
    expect(manifest.bindings).toEqual({
      durableObjects: {
        ROOMS: { class: 'Hall', id: 'Room' },
        OLD: { class: 'Plain', sql: false },
        AGAIN: { class: 'Gone', id: 'Gone.2' },
        NEW: { class: 'Undeclared' },
        deleted1: { id: 'Gone', deleted: true },
      },
    });
    const elsewhere = { bindings: [{ name: 'ROOMS', class_name: 'Room', script_name: 'other' }] };
    const moved = [{ tag: 'v1', transferred_classes: [{ from: 'A', from_script: 'other', to: 'B' }] }];
    expect(refusedKeys({ name: 'own', durable_objects: elsewhere, migrations: moved }).sort()).toEqual([
      'durable_objects.bindings[0].script_name',
      'migrations[0].transferred_classes',
    ]);
  });

  test('queues have the consumers of the same file, and workflows their classes', () => {
    const { manifest, refused } = read({
      name: 'own',
      queues: {
        producers: [
          { binding: 'JOBS', queue: 'jobs' },
          { binding: 'ALSO', queue: 'jobs' },
          { binding: 'DEAD', queue: 'dead' },
          { binding: 'FAR', queue: 'far' },
        ],
        consumers: [
          { queue: 'jobs', max_batch_size: 5, max_batch_timeout: 1, max_retries: 2, dead_letter_queue: 'dead' },
          { queue: 'in-coming', max_concurrency: null, retry_delay: 3 },
          { queue: 'pulled', type: 'http_pull' },
        ],
      },
      workflows: [
        { binding: 'FLOW', name: 'flow', class_name: 'Flow' },
        { binding: 'ELSEWHERE', name: 'else', class_name: 'Flow', script_name: 'other' },
      ],
    });
    expect(manifest.bindings?.queues).toEqual({
      JOBS: {
        queue: 'jobs',
        consumer: { maxBatchSize: 5, maxBatchTimeout: 1, maxRetries: 2, deadLetterQueue: 'dead' },
      },
      ALSO: { queue: 'jobs' },
      DEAD: { queue: 'dead' },
      FAR: { queue: 'far' },
      consumer_in_coming: { queue: 'in-coming', producer: false, consumer: { retryDelay: 3 } },
      consumer_pulled: { queue: 'pulled', producer: false, consumer: {} },
    });
    expect(manifest.bindings?.workflows).toMatchObject({ FLOW: { class: 'Flow', name: 'flow' } });
    expect(refused.map(({ key }) => key).sort()).toEqual([
      'queues.consumers[2].type',
      'queues.producers[3]',
      'workflows[1].script_name',
    ]);
  });

  test('is handed on with its types, offered or not', () => {
    const names = ['durable_objects', 'migrations', 'queues', 'workflows', 'services', 'hyperdrive', 'ratelimits'];
    const asked = Object.fromEntries(names.map((name) => [name, samples[name]]));
    const project = read(asked, { offered: new Set(names) });
    expect(project.refused).toEqual([]);
    expect(project.features).toEqual(asked);
    expect(read(asked).features).toEqual(asked);
    expect(faultOf({ services: [{ binding: 'X' }] })).toMatch(/services\[0\]\.service: expected string/);
  });

  test('assets', () => {
    const assets = { directory: './public', binding: 'ASSETS', html_handling: 'none', not_found_handling: '404-page' };
    expect(read({ assets: { ...assets, run_worker_first: ['/api/*'], base_path: '/a' } }).assets).toEqual({
      directory: './public',
      binding: 'ASSETS',
      htmlHandling: 'none',
      notFoundHandling: '404-page',
      runWorkerFirst: ['/api/*'],
      basePath: '/a',
    });
    expect(faultOf({ assets: { run_worker_first: 'yes' } })).toMatch(
      /assets\.run_worker_first: expected true, false or a list/,
    );
  });
});

describe('what does not matter here', () => {
  test('is named with its reason', () => {
    const config = { account_id: 'x', routes: ['example.com/*'], placement: { mode: 'smart' }, logpush: true };
    expect(read(config).ignored).toEqual(
      Object.keys(config)
        .map((key) => expect.objectContaining({ key, reason: expect.any(String) }))
        .sort(),
    );
    expect(read(config).ignored.find(({ key }) => key === 'routes')?.reason).toContain('turnpike domains');
  });

  test('is what wrangler does not know', () => {
    expect(
      read(
        {
          kv_namespace: [],
          hello: 1,
          constructor: 1,
          d1_databases: [{ binding: 'A', databse_id: 'x' }],
          env: { a: { vras: {} } },
        },
        { environment: 'a' },
      ).ignored,
    ).toEqual([
      { key: 'kv_namespace', reason: "it is not a key of wrangler's configuration; did you mean kv_namespaces?" },
      { key: 'hello', reason: "it is not a key of wrangler's configuration" },
      { key: 'constructor', reason: "it is not a key of wrangler's configuration" },
      { key: 'd1_databases', reason: expect.stringContaining('env.a') },
      { key: 'env.a.vras', reason: "it is not a key of wrangler's configuration; did you mean vars?" },
    ]);
    expect(ignoredKeys({ d1_databases: [{ binding: 'A', databse_id: 'x' }] })).toEqual(['d1_databases[].databse_id']);
  });
});

describe('faults', () => {
  test.each([
    [{ name: 1 }, 'wrangler.json:2: name: expected string, received number'],
    [{ main: '' }, 'main: is empty'],
    [{ compatibility_date: 'today' }, 'compatibility_date: expected "YYYY-MM-DD"'],
    [{ vars: ['a'] }, 'vars: expected record, received array'],
    [{ vars: { 'a-b': 'x' } }, 'vars.a-b: is no name for a var'],
    [{ triggers: { crons: '* * * * *' } }, 'triggers.crons: expected array, received string'],
    [{ kv_namespaces: {} }, 'kv_namespaces: expected array, received object'],
    [
      { kv_namespaces: [{ id: 'x' }] },
      'wrangler.json:3: kv_namespaces[0].binding: expected string, received undefined',
    ],
    [{ kv_namespaces: [{ binding: 'a-b' }] }, 'kv_namespaces[0].binding: is no name for a binding'],
    [{ r2_buckets: [{ binding: 'A', bucket_name: 1 }] }, 'r2_buckets[0].bucket_name: expected string'],
    [{ rules: [{ type: 'Wasm', globs: [] }] }, 'rules[0].type: expected one of "ESModule"|"CommonJS"'],
    [{ define: { A: 1 } }, 'define.A: expected string'],
    [{ secrets: { required: ['a b'] } }, 'secrets.required[0]: is no name for a var or a secret'],
    [
      { vars: { DB: '' }, d1_databases: [{ binding: 'DB' }] },
      'vars.DB: DB is the name of d1_databases[0].binding already',
    ],
    [
      { kv_namespaces: [{ binding: 'A' }, { binding: 'A' }] },
      'kv_namespaces[1].binding: A is the name of kv_namespaces[0].binding already',
    ],
    [
      { vars: { FLOW: '' }, workflows: [{ binding: 'FLOW', name: 'a', class_name: 'A' }] },
      'FLOW is the name of workflows[0]',
    ],
    [
      { ...samples, assets: { binding: 'ROOM' } },
      'durable_objects.bindings[0]: ROOM is the name of assets.binding already',
    ],
    [[], 'wrangler.json:1: expected an object'],
  ])('%j', (config, words) => {
    expect(faultOf(config)).toContain(words);
  });

  test('are named together', () => {
    expect(faultOf({ name: 1, main: 2 })).toBe(
      'wrangler.json:2: name: expected string, received number; wrangler.json:3: main: expected string, received number',
    );
    expect(faultOf({ kv_namespaces: Array(1000).fill(1) })).toMatch(/; and 980 more$/);
  });

  test('of an environment name its section', () => {
    const config = { env: { staging: { vars: { A: 'a', 'b c': 'b' } } } };
    expect(faultOf(config, { environment: 'staging' })).toMatch(/^wrangler\.json:6: env\.staging\.vars\.b c: /);
  });

  test('have no values', () => {
    expect(faultOf({ vars: 'hunter2' })).not.toContain('hunter2');
    expect(fault(() => toml('[vars]\nKEY = "hunter2\n'))).not.toContain('hunter2');
  });

  test.each([
    [
      '{\n  "name": "a"\n  "main": "b"\n}',
      'wrangler.jsonc',
      'wrangler.jsonc:3:3: it is not JSON with comments: comma expected',
    ],
    ['', 'wrangler.json', 'wrangler.json:1:1: '],
    ['{} x', 'wrangler.json', 'wrangler.json:1:4: '],
    ['name = "a"\nmain = \n', 'a/wrangler.toml', 'a/wrangler.toml:2:'],
    ['compatibility_date = 2026-01-01', 'wrangler.toml', 'compatibility_date: '],
    ['[vars]\nDAY = 2026-01-01', 'wrangler.toml', 'vars.DAY: expected text or JSON; a date has to be in quotes'],
    ['[vars]\nN = nan', 'wrangler.toml', 'vars.N: expected text or JSON'],
  ])('of the text %j', (text, file, words) => {
    expect(fault(() => readWrangler(text, file, {}))).toContain(words);
  });
});

describe('hostile text', () => {
  test.each([
    ['{"__proto__": {"name": "x"}}', 'wrangler.json'],
    ['{"vars": {"__proto__": {"polluted": 1}}}', 'wrangler.json'],
    ['["__proto__"]\nname = "x"', 'wrangler.toml'],
    ['[vars.__proto__]\npolluted = 1', 'wrangler.toml'],
  ])('%j', (text, file) => {
    expect(fault(() => readWrangler(text, file, {}))).toContain('__proto__: is no name that can be used');
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test('a binding may not be called __proto__', () => {
    expect(faultOf({ kv_namespaces: [{ binding: '__proto__' }] })).toContain('kv_namespaces[0].binding');
    expect(faultOf({ secrets: { required: ['__proto__'] } })).toContain('secrets.required[0]');
    expect(read({ kv_namespaces: [{ binding: 'constructor' }] }).manifest.bindings?.kv?.constructor).toEqual({});
  });

  test('larger than 1 MiB is refused', () => {
    expect(fault(() => readWrangler(`${'['.repeat(10_000_000)}`, 'wrangler.json', {}))).toMatch(
      /larger than 1048576 bytes/,
    );
    expect(fault(() => toml(`# ${'ü'.repeat(600_000)}`))).toMatch(/larger than/);
  });

  const many = 500_000;
  test.each([
    ['lists', '['.repeat(many), 'wrangler.json'],
    ['objects', '{"a":'.repeat(many / 5), 'wrangler.json'],
    ['lists that a wrong bracket closes', '[}'.repeat(many), 'wrangler.json'],
    ['lists of vars', `{"vars":{"A":${'['.repeat(1000)}${']'.repeat(1000)}}}`, 'wrangler.json'],
    ['lists in TOML', `a = ${'['.repeat(many)}`, 'wrangler.toml'],
    ['dotted keys in TOML', `vars${'.a'.repeat(many)} = 1`, 'wrangler.toml'],
    ['tables in TOML', `[vars${'.a'.repeat(many)}]\nx = 1`, 'wrangler.toml'],
  ])('deep %s are refused', (_, text, file) => {
    expect(fault(() => readWrangler(text, file, {}))).toMatch(/deep|depth|nest/);
  });

  test('brackets in texts and comments are no nesting', () => {
    const text = `{ // ${'['.repeat(1000)}\n "vars": { "A": "${'{'.repeat(1000)}\\"[" } /* ${'{'.repeat(1000)} */ }`;
    expect(readWrangler(text, 'wrangler.jsonc', {}).manifest.vars?.A).toHaveLength(1002);
  });
});
