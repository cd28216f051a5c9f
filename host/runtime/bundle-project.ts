/**
 * Bundles a project from the owner's own disk: npm imports included, one module out. For `turnpike deploy` and for
 * the built-in tenants; what strangers send goes through bundle.ts, which reaches no file of this machine.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { type BuildFailure, build, type Message } from 'esbuild';
import { type FieldError, Problem } from '../shared/problem.ts';

export interface ProjectBundle {
  /** Module name -> text, or bytes in base64; the first is the entry. */
  modules: Record<string, string | { base64: string }>;
  main: string;
}

const MAIN = 'index.js';
/** Marks what is asked of esbuild itself. */
const FOUND_BY_ESBUILD = Symbol('found by esbuild');

/**
 * @param entry path of the file with the default export
 * @throws Problem code_rejected with file, line and column of each error
 */
export async function bundleProject(entry: string): Promise<ProjectBundle> {
  const extra: ProjectBundle['modules'] = {};
  const result = await build({
    absWorkingDir: path.dirname(path.resolve(entry)),
    entryPoints: [path.resolve(entry)],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    target: 'esnext',
    mainFields: ['workerd', 'worker', 'browser', 'module', 'main'],
    conditions: ['workerd', 'worker', 'browser', 'import'],
    external: ['cloudflare:*', 'node:*', 'workerd:*'],
    loader: { '.html': 'text', '.txt': 'text', '.sql': 'text', '.svg': 'text', '.css': 'text', '.md': 'text' },
    outfile: MAIN,
    sourcemap: 'inline',
    sourcesContent: true,
    charset: 'utf8',
    logLevel: 'silent',
    plugins: [
      {
        name: 'separate-modules',
        setup(esbuild) {
          // workerd compiles these itself; they travel beside the bundle.
          esbuild.onResolve({ filter: /\.(wasm|bin)(\?module)?$/ }, async ({ path: wanted, pluginData, ...from }) => {
            if (pluginData === FOUND_BY_ESBUILD) return undefined;
            const found = await esbuild.resolve(wanted.replace(/\?module$/, ''), {
              ...from,
              pluginData: FOUND_BY_ESBUILD,
            });
            if (found.errors.length > 0) return { errors: found.errors, warnings: found.warnings };
            if (found.external) return { path: found.path, external: true };
            const bytes = await readFile(found.path);
            const name = separateName(found.path, bytes);
            extra[name] = { base64: bytes.toString('base64') };
            return { path: `./${name}`, external: true };
          });
        },
      },
    ],
  }).catch((failure: BuildFailure) => {
    throw new Problem('code_rejected', failure.errors?.[0]?.text ?? failure.message, {
      errors: (failure.errors ?? []).map((message) => fieldError(message)),
    });
  });
  const code = result.outputFiles[0]?.text ?? '';
  return { modules: { [MAIN]: code, ...extra }, main: MAIN };
}

/** One name for one content: files of different folders and packages may have the same. */
function separateName(file: string, bytes: Uint8Array): string {
  const { name, ext } = path.parse(file);
  const digest = createHash('sha256').update(bytes).digest('hex').slice(0, 12);
  return `${name.replaceAll(/[^A-Za-z0-9_.-]/g, '_').slice(0, 100)}-${digest}${ext}`;
}

function fieldError({ text, location }: Message): FieldError {
  return {
    pointer: '/code',
    detail: text,
    ...(location ? { file: location.file, line: location.line, column: location.column + 1 } : {}),
  };
}
