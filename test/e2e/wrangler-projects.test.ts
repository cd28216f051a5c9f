/** Projects for wrangler, deployed by the bare command: every answer is the one that Miniflare gives. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Miniflare, type MiniflareOptions } from 'miniflare';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { projectSettings, readProject } from '../../host/cli/project/manifest.ts';
import { bundleProject } from '../../host/runtime/bundle-project.ts';
import { PACKAGE_PROJECTS } from '../fixtures/package-projects.ts';
import { type Ask, WRANGLER_PROJECTS, type WranglerProjectFixture } from '../fixtures/wrangler-projects.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

/** Packages of the projects are found here, as after `npm install`. */
const CHECKOUT = fileURLToPath(new URL('../../', import.meta.url));
const COMPARED = ['content-type', 'location', 'cache-control', 'x-from', 'x-a', 'x-robots-tag', 'x-through'];

let folder: string;
let host: TestHost;
beforeAll(async () => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'wrangler-projects-')));
  symlinkSync(path.join(CHECKOUT, 'node_modules'), path.join(folder, 'node_modules'));
  host = await startHost({ flags: { 'log-level': 'error' } });
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
  rmSync(folder, { recursive: true, force: true });
});

const command = (args: string[], cwd: string) =>
  turnpike(['--host-url', host.url, '--data', host.data, ...args], { cwd, env: { HOME: folder } });

function write(name: string, { files, packed }: Pick<WranglerProjectFixture, 'files' | 'packed'>): string {
  const project = path.join(folder, name);
  mkdirSync(project, { recursive: true });
  if (packed) execFileSync('tar', ['-xzf', packed, '-C', project]);
  for (const [file, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(project, file)), { recursive: true });
    writeFileSync(path.join(project, file), content);
  }
  return project;
}

/** The same project in Miniflare, bundled once, with those that it calls. */
async function miniflare(project: string, environment: string | undefined, called: string[]): Promise<Miniflare> {
  const workers = [];
  for (const one of [project, ...called]) workers.push(await worker(one, environment));
  return new Miniflare({ workers } as unknown as MiniflareOptions);
}

async function worker(project: string, environment: string | undefined): Promise<object> {
  const read = await readProject({ cwd: project }, undefined, undefined, environment);
  const { manifest, build, wrangler } = read;
  expect(wrangler?.refused).toEqual([]);
  const named = (kind: 'kv' | 'd1' | 'r2') =>
    Object.fromEntries(
      Object.entries((manifest.bindings?.[kind] ?? {}) as Record<string, { id?: string }>).map(([name, { id }]) => [
        name,
        id ?? name,
      ]),
    );
  const queues = Object.entries(
    (manifest.bindings?.queues ?? {}) as Record<string, { queue: string; producer?: boolean; consumer?: object }>,
  );
  const { directory, binding, htmlHandling, notFoundHandling, runWorkerFirst } = manifest.assets ?? {};
  const { entry } = manifest;
  const code = entry ? await bundleProject(path.join(project, entry), { ...build, root: folder }) : undefined;
  const text = code ? String(code.modules[code.main]) : 'export default { fetch: (r, env) => env.ASSETS.fetch(r) }';
  const isScript = !/\bexport\s*(?:\{|default\b)/.test(text);
  const types = {
    '.wasm': 'CompiledWasm',
    '.bin': 'Data',
    '.png': 'Data',
    '.txt': 'Text',
    '.tpl': 'Text',
    '.js': 'ESModule',
    '.mjs': 'ESModule',
  } as const;
  const patterns = Array.isArray(runWorkerFirst) ? runWorkerFirst : undefined;
  return {
    name: manifest.slug ?? 'worker',
    compatibilityDate: manifest.compatibilityDate,
    compatibilityFlags: projectSettings(read, {}, code).compatibilityFlags ?? [],
    ...(isScript
      ? { script: text }
      : {
          modules: Object.entries(code ? code.modules : { 'index.js': text })
            .sort(([a], [b]) => Number(b === code?.main) - Number(a === code?.main))
            .map(([name, content]) => ({
              type: types[path.extname(name) as keyof typeof types],
              path: name,
              contents: typeof content === 'string' ? content : Buffer.from(content.base64, 'base64'),
            })),
        }),
    bindings: manifest.vars ?? {},
    kvNamespaces: named('kv'),
    d1Databases: named('d1'),
    r2Buckets: named('r2'),
    serviceBindings: Object.fromEntries(
      Object.entries((manifest.bindings?.services ?? {}) as Record<string, { service?: string }>).map(
        ([name, { service = manifest.slug, ...rest }]) => [name, { name: service, ...rest }],
      ),
    ),
    ratelimits: Object.fromEntries(
      Object.entries((manifest.bindings?.ratelimit ?? {}) as Record<string, object>).map(([name, simple]) => [
        name,
        { simple },
      ]),
    ),
    durableObjects: Object.fromEntries(
      Object.entries((manifest.bindings?.durableObjects ?? {}) as Record<string, { class?: string; sql?: boolean }>)
        .filter(([, one]) => one.class !== undefined)
        .map(([name, { class: className, sql }]) => [name, { className, useSQLite: sql !== false }]),
    ),
    queueProducers: Object.fromEntries(
      queues.filter(([, { producer }]) => producer !== false).map(([name, { queue }]) => [name, queue]),
    ),
    queueConsumers: Object.fromEntries(
      queues.flatMap(([, { queue, consumer }]) => (consumer ? [[queue, consumer]] : [])),
    ),
    workflows: Object.fromEntries(
      Object.entries((manifest.bindings?.workflows ?? {}) as Record<string, { class: string; name: string }>).map(
        ([binding, { class: className, name }]) => [binding, { className, name }],
      ),
    ),
    ...(directory === undefined
      ? {}
      : {
          assets: {
            directory: path.join(project, directory),
            binding: binding ?? (entry ? undefined : 'ASSETS'),
            routerConfig: {
              has_user_worker: entry !== undefined,
              invoke_user_worker_ahead_of_assets: runWorkerFirst === true,
              ...(patterns
                ? {
                    static_routing: {
                      user_worker: patterns.filter((rule) => !rule.startsWith('!')),
                      asset_worker: patterns.filter((rule) => rule.startsWith('!')).map((rule) => rule.slice(1)),
                    },
                  }
                : {}),
            },
            assetConfig: { html_handling: htmlHandling, not_found_handling: notFoundHandling },
          },
        }),
  };
}

async function answer(origin: string, prefix: string, ask: string | Ask) {
  const { path: target, ...init } = typeof ask === 'string' ? { path: ask } : ask;
  const url = `${origin}${prefix}${target}`;
  const response = await fetch(url, { redirect: 'manual', ...init }).catch((cause) => {
    throw new Error(`${url} did not answer`, { cause });
  });
  const headers = Object.fromEntries(COMPARED.map((name) => [name, response.headers.get(name)]));
  if (headers.location?.startsWith(`${prefix}/`)) headers.location = headers.location.slice(prefix.length);
  return { ask, status: response.status, headers, body: await response.text() };
}

/** A test that is tried again begins without what its earlier try has stored. */
const tried = new Set<string>();

describe('answers as under Miniflare', () => {
  it.each(Object.entries({ ...WRANGLER_PROJECTS, ...PACKAGE_PROJECTS }))('%s', async (name, fixture) => {
    const { called, slug = name } = fixture;
    if (tried.has(slug)) await command(['delete', slug, '--yes'], folder);
    tried.add(slug);
    const others = called ? [write(called.slug, called)] : [];
    for (const other of others) expect((await command(['deploy', '--yes'], other)).stderr).toBe('');
    const project = write(name, fixture);
    const deployed = await command(['deploy', '--yes', ...(fixture.args ?? [])], project);
    expect(deployed.stderr).toBe('');
    expect(deployed.code).toBe(0);
    expect(deployed.stdout).toMatch(
      new RegExp(`^(http://${slug}\\.localhost:\\d+/\n)?http://localhost:\\d+/${slug}/\n$`),
    );
    const peer = await miniflare(project, fixture.environment, others);
    try {
      const origin = (await peer.ready).origin;
      for (const ask of fixture.asks)
        expect(await answer(host.url, `/${slug}`, ask)).toEqual(await answer(origin, '', ask));
    } finally {
      await peer.dispose();
    }
  });
});

describe('what the host does not have is named before anything is paid', () => {
  it.each<[string, Record<string, string>, string[]]>([
    [
      'wrangler.jsonc',
      {
        'wrangler.jsonc':
          '{\n "name": "needs-more",\n "main": "index.js",\n "images": { "binding": "I" },\n "queues": {\n  "producers": [{ "binding": "Q", "queue": "q" }]\n }\n}',
      },
      ['wrangler.jsonc:4', 'images', 'wrangler.jsonc:', 'queues.producers[0]', 'Nothing was sent or paid'],
    ],
    [
      'wrangler.toml',
      { 'wrangler.toml': 'name = "needs-more"\nmain = "index.js"\n[[vectorize]]\nbinding = "V"\nindex_name = "i"\n' },
      ['wrangler.toml', 'vectorize'],
    ],
    ['wrangler.json', { 'wrangler.json': '{ "name": 1, "main": "index.js" }' }, ['wrangler.json', 'name']],
    ['wrangler.jsonc', { 'wrangler.jsonc': '{\n  "name": "x",,\n}' }, ['wrangler.jsonc:2']],
  ])('%s', async (_file, files, words) => {
    const project = write('refused', { files: { ...files, 'index.js': 'export default { fetch() {} }' } });
    try {
      const { code, stdout, stderr } = await command(['deploy', '--yes'], project);
      expect(code).toBe(2);
      expect(stdout).toBe('');
      for (const word of words) expect(stderr).toContain(word);
      expect((await fetch(`${host.url}/needs-more/`)).status).toBe(404);
    } finally {
      rmSync(project, { recursive: true });
    }
  });

  it('secrets that the file requires are asked for, and come from .dev.vars where the user says so', async () => {
    const project = write('secretive', {
      files: {
        'wrangler.jsonc': '{ "name": "secretive", "main": "index.js", "secrets": { "required": ["API_KEY"] } }',
        'index.js': 'export default { fetch: (request, env) => new Response(env.API_KEY + env.OTHER) }',
        '.dev.vars': 'API_KEY="a key"\nOTHER=more # a comment\n',
      },
    });
    const without = await command(['deploy', '--yes'], project);
    expect(without.code).toBe(2);
    expect(without.stderr).toContain('requires the secrets API_KEY');
    const deployed = await command(['deploy', '--yes', '--secrets-from', '.dev.vars'], project);
    expect(deployed.stderr).toBe('');
    expect(await (await fetch(`${host.url}/secretive/`)).text()).toBe('a keymore');
  });
});

it('stacks in the log lead to the lines of the sources, of the project and of what a build tool made of it', async () => {
  const map = { version: 3, file: 'late.js', sources: ['../../src/late.ts'], names: [], mappings: 'AAQA' };
  const project = write('traced', {
    files: {
      'wrangler.jsonc': '{ "name": "traced", "main": "src/index.ts", "upload_source_maps": true, "minify": true }',
      'src/index.ts': `import { check } from './lib/check.ts';
interface Env { NAME?: string }
export default { async fetch(request: Request, env: Env): Promise<Response> {
  if (new URL(request.url).pathname === '/late') return (await import('../dist/server/late.js')).late();
  return new Response(check(env.NAME));
} };`,
      'src/lib/check.ts': `type Name = string | undefined;

export function check(name: Name): string {
  if (name === undefined)
    throw new RangeError('no name');
  return name;
}`,
      'dist/server/late.js': "export function late(){throw new TypeError('late')}\n//# sourceMappingURL=late.js.map\n",
      'dist/server/late.js.map': JSON.stringify(map),
    },
  });
  expect((await command(['deploy', '--yes'], project)).stderr).toMatch(/^(turnpike: )?(note .*\n)?$/);
  for (const target of ['', 'late']) expect((await fetch(`${host.url}/traced/${target}`)).status).toBe(500);
  let seen = '';
  await until(async () => {
    seen = (await command(['logs'], project)).stdout;
    return seen.includes('no name') && seen.includes('late');
  });
  expect(seen).toContain('RangeError: no name');
  expect(seen).toMatch(/src\/lib\/check\.ts:5:11/);
  expect(seen).toMatch(/src\/index\.ts:5:/);
  expect(seen).toMatch(/src\/late\.ts:9:/);
});
