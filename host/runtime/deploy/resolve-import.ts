/** Which given module an import means. Nothing else exists: no file of this machine, no registry. */
import path from 'node:path';
import { runtimeModule } from '../runtime-modules.ts';

export type Resolution =
  | { kind: 'module'; name: string }
  /** Provided by workerd. */
  | { kind: 'runtime'; name: string }
  | { kind: 'missing' };

const ENDINGS = ['.ts', '.tsx', '.mts', '.js', '.jsx', '.mjs', '.cjs', '.json'];
/** TypeScript's custom: an import names the file that the compiler would have written. */
const WRITTEN_AS: Record<string, string[]> = { '.js': ['.ts', '.tsx'], '.jsx': ['.tsx'], '.mjs': ['.mts'] };

/**
 * @param importer name of the importing module; undefined for the entry
 * @param has whether a module of that name was given
 */
export function resolveImport(
  specifier: string,
  importer: string | undefined,
  has: (name: string) => boolean,
): Resolution {
  const wanted = specifier.replace(/\?module$/, '');
  const relative = wanted.startsWith('./') || wanted.startsWith('../');
  const base = relative ? path.posix.join(path.posix.dirname(importer ?? ''), wanted) : wanted;
  for (const name of candidates(base)) if (has(name)) return { kind: 'module', name };
  const provided = runtimeModule(specifier);
  return provided === undefined ? { kind: 'missing' } : { kind: 'runtime', name: provided };
}

function candidates(base: string): string[] {
  const ending = path.posix.extname(base);
  const stem = base.slice(0, base.length - ending.length);
  return [
    base,
    ...(WRITTEN_AS[ending] ?? []).map((other) => stem + other),
    ...ENDINGS.map((other) => base + other),
    ...ENDINGS.map((other) => path.posix.join(base, `index${other}`)),
  ];
}
