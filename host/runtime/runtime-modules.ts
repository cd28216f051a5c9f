/** Modules that workerd provides, left out of what esbuild bundles: `node:`, `cloudflare:`, `workerd:`, Node's bare names. */
import { builtinModules } from 'node:module';
import type { OnResolveArgs, OnResolveResult, PluginBuild } from 'esbuild';

/** `import()` of what only running the code tells, in what esbuild writes. */
export const COMPUTED_IMPORT = /\bimport\(\s*(?!["'][^"']*["']\s*[,)])/;
const PREFIXED = /^(cloudflare|node|workerd):/;
const BUILTINS = new Set(builtinModules);
const REQUIRED = 'required';

/** @returns workerd's name of the module; undefined when workerd has none of that name */
export function runtimeModule(specifier: string): string | undefined {
  if (PREFIXED.test(specifier)) return specifier;
  return BUILTINS.has(specifier) ? `node:${specifier}` : undefined;
}

/** What an import of a module of workerd becomes. `require()` needs `loadRequired` in the same build. */
export function leaveToRuntime(name: string, kind: OnResolveArgs['kind']): OnResolveResult {
  // An ES module has no require() at run time.
  return kind === 'require-call' ? { path: name, namespace: REQUIRED } : { path: name, external: true };
}

/** Makes `require()` of a module of workerd an import. */
export function loadRequired(esbuild: PluginBuild): void {
  esbuild.onLoad({ filter: /.*/, namespace: REQUIRED }, ({ path }) => ({
    // The default export of a module of Node is what require() answers there: `require('events')` is a class.
    contents: path.startsWith('node:')
      ? `import value from '${path}'; module.exports = value;`
      : `export * from '${path}';`,
  }));
}
