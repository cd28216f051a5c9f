/**
 * Bundles a project from the owner's own disk: npm imports included, one module out. For `turnpike deploy` and for
 * the built-in tenants; what strangers send goes through bundle.ts, which reaches no file of this machine.
 */
import { createHash } from 'node:crypto';
import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { type BuildFailure, type BuildOptions, build, type Message } from 'esbuild';
import picomatch from 'picomatch';
import { type FieldError, Problem } from '../shared/problem.ts';
import { COMPUTED_IMPORT, leaveToRuntime, loadRequired, runtimeModule } from './runtime-modules.ts';

export interface ProjectBundle {
  /** Module name -> text, or bytes in base64; the first is the entry. */
  modules: Record<string, string | { base64: string }>;
  main: string;
}

/** What wrangler's `rules` say: files of these names are modules of that type. */
export interface ModuleRule {
  type: 'ESModule' | 'CommonJS' | 'CompiledWasm' | 'Text' | 'Data';
  globs: string[];
}

/** Options of esbuild that are handed on. */
type Handed = Pick<BuildOptions, 'tsconfig' | 'minify' | 'keepNames' | 'jsxFactory' | 'jsxFragment'>;

export interface ProjectBuild extends Handed {
  /**
   * Folder that everything comes from, packages in a `node_modules` apart: the code may be a stranger's, and what it
   * imports leaves this machine with it; undefined: the code is trusted.
   */
  root?: string | undefined;
  /** They come before the usual ones. Globs are relative to the entry's folder. */
  rules?: ModuleRule[] | undefined;
  /**
   * Folder around the entry whose files that match the rules are modules by their names in it, where the code computes
   * what it imports: `base_dir` of wrangler's `find_additional_modules`.
   */
  additional?: string | undefined;
  /** Modules of workerd that are left to it, although a package has the name. */
  external?: string[] | undefined;
  /** Import -> what is imported in its place. */
  alias?: Record<string, string> | undefined;
  /** Expression -> the expression in its place. */
  define?: Record<string, string> | undefined;
}

const MAIN = 'index.js';
const MOST_ADDITIONAL = 1_000;
/** Modules that travel beside the code, for workerd to compile or to hand over -> the ending that the host knows them by. */
const SEPARATE = { CompiledWasm: '.wasm', Data: '.bin' } as const;
/** As wrangler has them, and a few more texts. */
const USUAL_RULES: ModuleRule[] = [
  { type: 'Text', globs: ['**/*.{txt,html,sql,svg,css,md}'] },
  { type: 'Data', globs: ['**/*.bin'] },
  { type: 'CompiledWasm', globs: ['**/*.wasm'] },
];
/** Marks what is asked of esbuild itself. */
const FOUND_BY_ESBUILD = Symbol('found by esbuild');

/**
 * @param entry path of the file with the default export
 * @throws Problem code_rejected with file, line and column of each error, or with what is left out and missing
 */
export async function bundleProject(entry: string, options: ProjectBuild = {}): Promise<ProjectBundle> {
  const bundled = await bundle(entry, options, new Map());
  const { additional } = options;
  if (additional === undefined || !COMPUTED_IMPORT.test(String(bundled.modules[bundled.main]))) return bundled;
  const base = await realpath(additional).catch(() => {
    throw new Problem('code_rejected', `There is no folder ${additional}, which "base_dir" names.`);
  });
  const files = await additionalFiles(base, entry, rulesOf(options));
  const { modules, main } = await bundle(entry, options, files);
  for (const [file, { name, type }] of files) {
    const content = await readFile(file);
    const isText = type !== 'Data' && type !== 'CompiledWasm';
    modules[name] = isText ? content.toString('utf8') : { base64: content.toString('base64') };
  }
  return { modules, main };
}

/** Files that are modules of their own -> their names, and what they are. */
type Beside = Map<string, { name: string; type: ModuleRule['type'] }>;

/** @throws Problem code_rejected */
async function additionalFiles(folder: string, entry: string, rules: ModuleRule[]): Promise<Beside> {
  const found: Beside = new Map();
  const main = await realpath(entry);
  const look = async (below: string) => {
    for (const item of await readdir(below, { withFileTypes: true })) {
      if (item.name === 'node_modules' || item.name.startsWith('.')) continue;
      const file = path.join(below, item.name);
      if (item.isDirectory()) await look(file);
      const name = path.relative(folder, file).replaceAll(path.sep, '/');
      const type = item.isFile() && file !== main ? typeOfFile(name, rules) : undefined;
      if (type !== undefined) found.set(file, { name, type });
      if (found.size > MOST_ADDITIONAL)
        throw new Problem('code_rejected', `${folder} has more than ${MOST_ADDITIONAL} files that match "rules".`);
    }
  };
  await look(folder);
  return found;
}

const rulesOf = ({ rules = [] }: ProjectBuild) => [...rules, ...USUAL_RULES];

function typeOfFile(file: string, rules: ModuleRule[]): ModuleRule['type'] | undefined {
  return rules.find(({ globs }) => globs.some((glob) => matches(glob, file)))?.type;
}

/** @param beside the code leaves these out, and imports them by their names */
async function bundle(entry: string, options: ProjectBuild, beside: Beside): Promise<ProjectBundle> {
  const { root, rules = [], external = [], additional, alias = {}, define = {}, ...others } = options;
  const unknown = external.find((name) => runtimeModule(name) === undefined);
  if (unknown !== undefined) {
    throw new Problem(
      'code_rejected',
      `${unknown} cannot be left out: workerd has no module of that name. Install it, or give another in its place with "alias" in wrangler.jsonc.`,
    );
  }
  const extra: ProjectBundle['modules'] = {};
  const folder = root === undefined ? undefined : await realpath(root);
  const home = path.dirname(path.resolve(entry));
  const base = additional === undefined ? home : await realpath(additional).catch(() => additional);
  const typeOf = (file: string) => typeOfFile(path.relative(base, file), rulesOf(options));
  const main = beside.size === 0 ? MAIN : mainName(path.relative(base, await realpath(entry)));
  const way = (name: string) => `./${path.posix.relative(path.posix.dirname(main), name)}`;
  // Where nothing else is a module of its own, esbuild finds all other imports by itself.
  const separate = beside.size > 0 || rules.some(({ type }) => type in SEPARATE) ? /./ : /\.(wasm|bin)(\?module)?$/;
  const result = await build({
    // Places in errors and stacks are told from here.
    absWorkingDir: folder ?? home,
    entryPoints: [path.resolve(entry)],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    target: 'esnext',
    mainFields: ['workerd', 'worker', 'browser', 'module', 'main'],
    conditions: ['workerd', 'worker', 'browser'],
    loader: { '.js': 'jsx', '.mjs': 'jsx', '.cjs': 'jsx' },
    // Packages with two forms have one for production, which is what runs here.
    define: { 'process.env.NODE_ENV': '"production"', ...define },
    alias,
    ...others,
    outfile: MAIN,
    sourcemap: 'inline',
    // Places are enough for stacks. A map in the code may name any file of this disk, whose text would be sent along.
    sourcesContent: false,
    charset: 'utf8',
    logLevel: 'silent',
    plugins: [
      {
        name: 'project',
        setup(esbuild) {
          esbuild.onLoad({ filter: /.*/, namespace: 'file' }, async ({ path: file }) => {
            await requireWithin(folder, file);
            return typeOf(file) === 'Text' ? { contents: await readFile(file), loader: 'text' } : undefined;
          });
          loadRequired(esbuild);
          esbuild.onResolve({ filter: /^[a-z_]/ }, async ({ path: wanted, pluginData, ...from }) => {
            const name = pluginData === FOUND_BY_ESBUILD ? undefined : runtimeModule(wanted);
            if (name === undefined) return undefined;
            if (external.includes(wanted) || external.includes(name)) return leaveToRuntime(name, from.kind);
            // A package of that name comes first: it is made to stand in where workerd is not told to provide Node's.
            const found = name !== wanted && (await esbuild.resolve(wanted, { ...from, pluginData: FOUND_BY_ESBUILD }));
            return found && found.errors.length === 0 ? undefined : leaveToRuntime(name, from.kind);
          });
          esbuild.onResolve({ filter: separate }, async ({ path: wanted, pluginData, ...from }) => {
            if (pluginData === FOUND_BY_ESBUILD || from.kind === 'entry-point') return undefined;
            const found = await esbuild.resolve(wanted.replace(/\?module$/, ''), {
              ...from,
              pluginData: FOUND_BY_ESBUILD,
            });
            if (found.errors.length > 0) return { errors: found.errors, warnings: found.warnings };
            if (found.external) return { path: found.path, external: true };
            const other = beside.get(found.path);
            if (other) return { path: way(other.name), external: true };
            const type = typeOf(found.path);
            if (type !== 'CompiledWasm' && type !== 'Data') return undefined;
            await requireWithin(folder, found.path);
            const bytes = await readFile(found.path);
            const name = path.posix.join(path.posix.dirname(main), separateName(found.path, bytes, SEPARATE[type]));
            extra[name] = { base64: bytes.toString('base64') };
            return { path: way(name), external: true };
          });
        },
      },
    ],
  }).catch((failure: BuildFailure) => {
    throw new Problem('code_rejected', failure.errors?.[0] ? detailOf(failure.errors[0]) : failure.message, {
      errors: (failure.errors ?? []).map((message) => fieldError(message)),
    });
  });
  return { modules: { [main]: result.outputFiles[0]?.text ?? '', ...extra }, main };
}

/** @throws Problem code_rejected */
function mainName(file: string): string {
  if (file.startsWith('..')) throw new Problem('code_rejected', `The entry is outside of "base_dir": ${file}.`);
  return file.replaceAll(path.sep, '/').replace(/\.[^./]+$/, '.js');
}

/** As wrangler matches; what is above the entry's folder is matched from where it is. */
function matches(glob: string, file: string): boolean {
  return picomatch.isMatch(file.replaceAll(path.sep, '/').replace(/^(\.\.\/)+/, ''), glob.replace(/^\.\//, ''));
}

/** @throws Error for a file that is not the project's and not a package's */
async function requireWithin(folder: string | undefined, file: string): Promise<void> {
  if (folder === undefined) return;
  const found = await realpath(file);
  const way = path.relative(folder, found);
  const outside = way === '..' || way.startsWith(`..${path.sep}`) || path.isAbsolute(way);
  if (outside && !found.split(path.sep).includes('node_modules'))
    throw new Error(`${found} is outside of ${folder}. To include it, name a folder that holds both with --root.`);
  // A pipe or a device would be read for ever.
  if (!(await stat(found)).isFile()) throw new Error(`${found} is not a regular file.`);
}

/** One name for one content: files of different folders and packages may have the same. */
function separateName(file: string, bytes: Uint8Array, ending: string): string {
  const { name } = path.parse(file);
  const digest = createHash('sha256').update(bytes).digest('hex').slice(0, 12);
  return `${name.replaceAll(/[^A-Za-z0-9_.-]/g, '_').slice(0, 100)}-${digest}${ending}`;
}

/** A package that is not installed is the most common fault. */
function detailOf({ text }: Pick<Message, 'text'>): string {
  const [, name] = /^Could not resolve "((?:@[^/"]+\/)?[^./"@][^/"]*)/.exec(text) ?? [];
  return name === undefined || isBuiltin(name) ? text : `${text}: run npm install, or npm install ${name}`;
}

function fieldError({ text, location }: Message): FieldError {
  return {
    pointer: '/code',
    detail: detailOf({ text }),
    ...(location ? { file: location.file, line: location.line, column: location.column + 1 } : {}),
  };
}
