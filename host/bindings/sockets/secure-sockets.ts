/** What gives `connect()` of a handler TLS: a module that workerd loads with the handler's env. */
import { readFileSync } from 'node:fs';
import type { Worker_Binding } from '../../capnp/generated/workerd.cjs';
import type { CodeModule } from '../../shared/contracts.ts';

const MODULE = 'turnpike-internal:sockets';
/** Setting it to undefined leaves env without a member, and still loads the module (workerd 1.20261117.1). */
const NO_NAME = '__proto__';
/** What code says that opens sockets, by itself or through a package. */
const TRACES = [
  'cloudflare:sockets',
  'getBuiltinModule',
  ...['net', 'tls'].flatMap((name) => [`node:${name}`, `'${name}'`, `"${name}"`]),
];

let source: string | undefined;

export const secureSockets = {
  name: MODULE,
  source(): string {
    source ??= readFileSync(new URL('secure-sockets.js', import.meta.url), 'utf8');
    return source;
  },
};

/** Most handlers open no sockets, and are spared the module. */
export function usesSockets(modules: CodeModule[]): boolean {
  return modules.some(({ type, body }) => {
    if (type !== 'esModule') return false;
    const text = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    return TRACES.some((trace) => text.includes(trace));
  });
}

/** Loads the module, and binds nothing. */
export function writeSecureSockets(binding: Worker_Binding): void {
  binding.setName(NO_NAME);
  binding.initWrapped().setModuleName(MODULE);
}
