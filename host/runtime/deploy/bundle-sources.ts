/**
 * Bundles given modules with esbuild into one entry module and the binary modules beside it. Runs in a process of its
 * own (bundle-worker.ts): parsing strangers' code must not be able to take the host along.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import {
  type BuildFailure,
  type BuildOptions,
  type BuildResult,
  build,
  type Loader,
  type Message,
  type OutputFile,
} from 'esbuild';
import type { CodeBundle, CodeModule } from '../../shared/contracts.ts';
import type { FieldError } from '../../shared/problem.ts';
import { COMPUTED_IMPORT, leaveToRuntime, loadRequired } from '../runtime-modules.ts';
import type { SourceModule, Sources } from './code-input.ts';
import { resolveImport } from './resolve-import.ts';

/** `unparsed`: the text was not understood at all. */
export type BundleResult = { bundle: CodeBundle } | { errors: FieldError[]; unparsed: boolean };

const GIVEN = 'given';
const ENTRY = 'index.js';
const MAX_ERRORS = 20;
/** What makes a module of a script. No given module can have the name. */
const SCRIPT_HANDLERS = 'turnpike:script-handlers';
const REQUIRED_APART = 'required-apart';
/** No given module can have the name. */
const REPORTER = '~reporter.js';
const LISTENS = /\baddEventListener\(\s*["'`](fetch|scheduled)\b/;

const LOADERS: Record<string, Loader> = {
  '.js': 'jsx',
  '.jsx': 'jsx',
  '.mjs': 'jsx',
  '.cjs': 'jsx',
  '.ts': 'ts',
  '.mts': 'ts',
  '.tsx': 'tsx',
  '.json': 'json',
  '.txt': 'text',
  '.html': 'text',
  '.css': 'text',
  '.svg': 'text',
  '.sql': 'text',
  '.md': 'text',
  '.xml': 'text',
  '.csv': 'text',
};
/** workerd takes these as they are: wasm compiled once, data as an ArrayBuffer. */
const SEPARATE: Record<string, CodeModule['type']> = { '.wasm': 'wasm', '.bin': 'data' };

export async function bundleSources(sources: Sources): Promise<BundleResult> {
  if (!sources.single) return tryBundle(sources, {});
  // JavaScript first: a few expressions mean something else in TypeScript, and it drops imports that are not used.
  const script = await tryBundle(sources, { '.ts': 'js' });
  return 'errors' in script && script.unparsed ? tryBundle(sources, {}) : script;
}

/**
 * workerd tells of exceptions, but not of promises that are rejected and that nobody waits for: their owner finds them
 * in the log as lines of the console.
 */
const REPORT_REJECTIONS =
  "globalThis.addEventListener('unhandledrejection', (event) => globalThis.console.error('Uncaught (in promise)', event.reason));";

async function tryBundle(sources: Sources, loaders: Record<string, Loader>): Promise<BundleResult> {
  const given = new Map(sources.modules.map((module) => [module.name, module]));
  const separate = new Map<string, CodeModule>();
  const flat = flatNames(sources.modules);
  let apart = false;
  try {
    const options = {
      entryPoints: [sources.main],
      bundle: true,
      write: false,
      metafile: true,
      outfile: ENTRY,
      absWorkingDir: '/',
      format: 'esm',
      platform: 'neutral',
      target: 'esnext',
      charset: 'utf8',
      banner: { js: REPORT_REJECTIONS },
      sourcemap: 'external',
      // Only places are looked up; what nothing imports would lie on the disk all the same.
      sourcesContent: false,
      legalComments: 'none',
      // Without it esbuild looks for a tsconfig.json on this machine.
      tsconfigRaw: '{}',
      logLevel: 'silent',
      logLimit: MAX_ERRORS,
      plugins: [
        {
          name: 'given-modules-only',
          setup(esbuild) {
            loadRequired(esbuild);
            esbuild.onResolve({ filter: /.*/ }, ({ path: specifier, importer, kind, namespace }) => {
              if (kind === 'entry-point') return { path: specifier, namespace: GIVEN };
              if (specifier === SCRIPT_HANDLERS) return { path: specifier, namespace: SCRIPT_HANDLERS };
              if (specifier === `/${REPORTER}` || namespace === REQUIRED_APART)
                return { path: specifier, external: true };
              const found = resolveImport(specifier, importer, (name) => given.has(name));
              if (found.kind === 'runtime') return leaveToRuntime(found.name, kind);
              if (found.kind === 'missing') return { errors: [{ text: missing(specifier) }] };
              const type = separateType(found.name, given.get(found.name));
              // None is a part of another: of thousands that import each other, the whole would be there as often.
              if (apart && kind === 'require-call') return { path: `/${found.name}`, namespace: REQUIRED_APART };
              if (apart) return { path: `/${found.name}`, external: true };
              if (type === undefined) return { path: found.name, namespace: GIVEN };
              const name = flat.get(found.name) ?? found.name;
              separate.set(name, { name, type, body: bytesOf(given.get(found.name)) });
              return { path: `./${name}`, external: true };
            });
            esbuild.onLoad({ filter: /.*/, namespace: SCRIPT_HANDLERS }, () => ({
              contents: readFileSync(new URL('script-handlers.js', import.meta.url)),
            }));
            esbuild.onLoad({ filter: /.*/, namespace: REQUIRED_APART }, ({ path: name }) => ({
              contents: `import * as all from ${JSON.stringify(name)}; module.exports = 'default' in all ? all.default : all;`,
            }));
            esbuild.onLoad({ filter: /.*/, namespace: GIVEN }, ({ path: name }) => {
              const ending = path.extname(name);
              const loader = loaders[ending] ?? LOADERS[ending];
              if (loader === undefined) {
                return { errors: [{ text: `Modules of the kind "${ending}" cannot be imported: use ${kinds()}` }] };
              }
              const module = given.get(name);
              return { contents: module?.text ?? bytesOf(module), loader };
            });
          },
        },
      ],
    } satisfies BuildOptions;
    const module = await build(options);
    if (given.size > 1 && !isScript(module) && COMPUTED_IMPORT.test(written(module, '.js')?.text ?? '')) {
      apart = true;
      return { bundle: await bundleApart(sources, options) };
    }
    const result = isScript(module) ? await build({ ...options, ...asModule(sources.main) }) : module;
    const code = written(result, '.js');
    const map = written(result, '.map');
    const entry: CodeModule = { name: ENTRY, type: 'esModule', body: code?.contents ?? new Uint8Array() };
    return { bundle: { modules: [entry, ...separate.values()], sourceMap: map && cleanMap(map.text) } };
  } catch (error) {
    const messages = (error as Partial<BuildFailure>).errors;
    if (!messages) throw error;
    return {
      errors: messages.slice(0, MAX_ERRORS).map((message) => fieldError(message, given)),
      unparsed: messages.some(({ pluginName }) => pluginName === ''),
    };
  }
}

/**
 * Code that imports what only running it tells finds every given module by its name, as on Cloudflare: each stays a module
 * of its own. The source map is the entry's; stacks name the others as they were given.
 */
async function bundleApart({ main, modules }: Sources, { outfile: _, ...options }: BuildOptions): Promise<CodeBundle> {
  const code = modules.filter(isCode).sort((a, b) => Number(b.name === main) - Number(a.name === main));
  const result = await build({
    ...options,
    entryPoints: code.map(({ name }, index) => ({ in: name, out: String(index) })),
    // Each imports it, and it runs once.
    banner: { js: `import ${JSON.stringify(`/${REPORTER}`)};` },
    outdir: '/',
    // workerd takes no attributes of imports (1.20261117.1): what a module is, it knows.
    supported: { 'import-attributes': false },
    write: false,
  });
  const made = (name: string) => result.outputFiles.find(({ path: place }) => place === `/${name}`);
  const reporter: CodeModule = { name: REPORTER, type: 'esModule', body: new TextEncoder().encode(REPORT_REJECTIONS) };
  const others = modules
    .filter((module) => !code.includes(module))
    .map((module): CodeModule => ({ name: module.name, type: typeApart(module), body: bytesOf(module) }));
  const map = made('0.js.map');
  return {
    modules: [
      ...code.map(({ name }, index): CodeModule => {
        return { name, type: 'esModule', body: made(`${index}.js`)?.contents ?? new Uint8Array() };
      }),
      reporter,
      ...others,
    ],
    sourceMap: map && cleanMap(map.text),
  };
}

function isCode({ name }: Pick<SourceModule, 'name'>): boolean {
  return ['jsx', 'ts', 'tsx'].includes(LOADERS[path.extname(name)] ?? '');
}

/** What is no code, as workerd hands it over: by its ending, or as the text or the bytes that it is. */
function typeApart(module: SourceModule): CodeModule['type'] {
  return separateType(module.name, module) ?? (path.extname(module.name) === '.json' ? 'json' : 'text');
}

/** Bytes of any other ending are data. */
function separateType(name: string, module: SourceModule | undefined): CodeModule['type'] | undefined {
  const ending = path.extname(name);
  return SEPARATE[ending] ?? (module?.bytes && LOADERS[ending] === undefined ? 'data' : undefined);
}

type Built = BuildResult<{ write: false; metafile: true }>;

function written({ outputFiles }: Built, ending: string): OutputFile | undefined {
  return outputFiles.find(({ path: name }) => name.endsWith(ending));
}

/** Service-worker syntax: it exports nothing, and listens. */
function isScript(built: Built): boolean {
  return built.metafile.outputs[ENTRY]?.exports.length === 0 && LISTENS.test(written(built, '.js')?.text ?? '');
}

function asModule(main: string) {
  const contents = `import handlers from '${SCRIPT_HANDLERS}'; import ${JSON.stringify(main)}; export default handlers;`;
  return { entryPoints: [], stdin: { contents, sourcefile: SCRIPT_HANDLERS, resolveDir: '/' } } satisfies BuildOptions;
}

/** Flat names, each once: workerd resolves imports relative to the entry module. */
function flatNames(modules: SourceModule[]): Map<string, string> {
  const taken = new Set<string>();
  const names = new Map<string, string>();
  for (const { name } of modules) {
    const plain = name.replaceAll('/', '_');
    let free = plain;
    for (let number = 2; taken.has(free); number++) free = `${number}_${plain}`;
    taken.add(free);
    names.set(name, free);
  }
  return names;
}

function missing(specifier: string): string {
  return specifier.startsWith('.')
    ? `"${specifier}" is not among the given modules`
    : `"${specifier}" is not among the given modules; packages must be bundled before they are sent (turnpike deploy does)`;
}

function kinds(): string {
  return [...Object.keys(LOADERS), ...Object.keys(SEPARATE)].join(' ');
}

function fieldError({ text, location }: Message, given: Map<string, SourceModule>): FieldError {
  const file = location?.file.replace(`${GIVEN}:`, '');
  return {
    pointer: (file !== undefined && given.get(file)?.pointer) || '/code',
    detail: text,
    ...(location && file !== undefined ? { file, line: location.line, column: location.column + 1 } : {}),
  };
}

/** Owners know their files by the names they sent. */
function cleanMap(text: string): string {
  const map = JSON.parse(text) as { sources: string[] };
  map.sources = map.sources.map((source) => source.replace(`${GIVEN}:`, ''));
  return JSON.stringify(map);
}

function bytesOf(module: SourceModule | undefined): Uint8Array {
  return module?.bytes ?? new TextEncoder().encode(module?.text ?? '');
}
