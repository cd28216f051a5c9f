/**
 * The module that a probe puts before the tenant's: it exports what the tenant's entry exports, and one entrypoint more,
 * which tells what that is. It runs beside hostile code, so it takes its tools before that code is loaded; what it says
 * is only about that code anyway.
 */
import type { CodeModule } from '../../shared/contracts.ts';

/** Name of the entrypoint; no entrypoint of a tenant's is called by such a name (bindings/services/names.ts). */
export const PROBE_ENTRYPOINT = 'turnpike probe';
/** The socket that leads to it is `<this>.sock`. */
export const PROBE_SOCKET = 'probe';

const PROBE_MODULE = 'turnpike-probe.js';
const TOOLS_MODULE = 'turnpike-probe-tools.js';

/** Handlers that a default export may have. */
export const HANDLERS = ['fetch', 'scheduled', 'queue', 'tail'] as const;

const TOOLS_SOURCE = `
import { WorkerEntrypoint } from 'cloudflare:workers';
const { stringify } = JSON;
const AnswerResponse = Response;
const { isPrototypeOf } = Object.prototype;
const { apply } = Reflect;
const isEntrypoint = (found) => apply(isPrototypeOf, WorkerEntrypoint, [found]);
export { stringify, AnswerResponse, isEntrypoint };
`;

/**
 * The modules to put before the tenant's.
 * @param entry name of the tenant's entry module; @param classes names that it should export classes by
 */
export function probeModules(entry: string, classes: string[]): CodeModule[] {
  const module = (name: string, text: string): CodeModule => ({
    name,
    type: 'esModule',
    body: new TextEncoder().encode(text),
  });
  return [module(PROBE_MODULE, probeSource(entry, classes)), module(TOOLS_MODULE, TOOLS_SOURCE)];
}

function probeSource(entry: string, classes: string[]): string {
  return `
import { stringify, AnswerResponse, isEntrypoint } from './${TOOLS_MODULE}';
import * as tenant from ${JSON.stringify(`./${entry}`)};
export * from ${JSON.stringify(`./${entry}`)};
function look() {
  if (!('default' in tenant)) return { handlers: [], kind: 'none' };
  const found = tenant.default;
  const isClass = typeof found === 'function';
  if (!isClass && (typeof found !== 'object' || found === null)) return { handlers: [], kind: typeof found };
  const holder = isClass ? found.prototype : found;
  const handlers = [];
  for (const name of ${JSON.stringify(HANDLERS)}) {
    try {
      if (holder && typeof holder[name] === 'function') handlers[handlers.length] = name;
    } catch {}
  }
  return { handlers, kind: isClass ? 'class' : 'object' };
}
function missing() {
  const names = [];
  for (const name of ${JSON.stringify(classes)}) {
    if (typeof tenant[name] !== 'function') names[names.length] = name;
  }
  return names;
}
function entrypoints() {
  const names = [];
  for (const name in tenant) {
    if (name === 'default') continue;
    try {
      const found = tenant[name];
      const isObject = typeof found === 'object' && found !== null && typeof found.fetch === 'function';
      if (isObject || (typeof found === 'function' && isEntrypoint(found))) names[names.length] = name;
    } catch {}
  }
  return names;
}
const probe = {
  fetch() {
    return new AnswerResponse(stringify({ ...look(), missing: missing(), entrypoints: entrypoints() }));
  },
};
export { probe as ${JSON.stringify(PROBE_ENTRYPOINT)} };
// workerd takes no default export of another type; the probe tells of it.
const own = tenant.default;
export default typeof own === 'function' || (typeof own === 'object' && own !== null) ? own : {};
`;
}
