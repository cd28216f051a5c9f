/**
 * The module that a probe runs before the tenant's: it imports the tenant's entry and tells what that exports. It runs
 * beside hostile code, so it takes its tools before that code is loaded; what it says is only about that code anyway.
 */

export const PROBE_MODULE = 'turnpike-probe.js';
export const TOOLS_MODULE = 'turnpike-probe-tools.js';

/** Handlers that a default export may have. */
export const HANDLERS = ['fetch', 'scheduled', 'queue', 'tail'] as const;

export const TOOLS_SOURCE = `
import { WorkerEntrypoint } from 'cloudflare:workers';
const { stringify } = JSON;
const { getPrototypeOf } = Object;
const AnswerResponse = Response;
const { isPrototypeOf } = Object.prototype;
const { apply } = Reflect;
const isEntrypoint = (found) => apply(isPrototypeOf, WorkerEntrypoint, [found]);
export { stringify, getPrototypeOf, AnswerResponse, isEntrypoint };
`;

/** @param entry name of the tenant's entry module; @param classes names that it should export classes by */
export function probeSource(entry: string, classes: string[]): string {
  return `
import { stringify, getPrototypeOf, AnswerResponse, isEntrypoint } from './${TOOLS_MODULE}';
import * as tenant from ${JSON.stringify(`./${entry}`)};
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
export default {
  fetch() {
    return new AnswerResponse(stringify({ ...look(), missing: missing(), entrypoints: entrypoints() }));
  },
};
`;
}
