/** What a stranger may send as code, checked and brought into one shape: named modules, one of them the entry. */
import { type FieldError, Problem } from '../../shared/problem.ts';

export interface CodeInput {
  /** One module, JavaScript or TypeScript. */
  code?: string;
  /** Module name -> text, or bytes in base64. */
  modules?: Record<string, string | { base64: string }>;
  /** The module with the default export; needed with `modules`. */
  main?: string;
}

export interface SourceModule {
  name: string;
  /** JSON pointer into the request. */
  pointer: string;
  text?: string;
  bytes?: Uint8Array;
}

export interface Sources {
  main: string;
  modules: SourceModule[];
  /** One string was given: it may be JavaScript or TypeScript, which only trying tells. */
  single: boolean;
}

const SINGLE = 'index.ts';
const MAX_MODULES = 2_000;
const MAX_NAME = 255;
/** Slashes and dots inside, no way up, nothing that a URL or a shell would read differently. */
const NAME = /^(?!\/)(?!.*(?:^|\/)\.{1,2}(?:\/|$))[A-Za-z0-9_@.\-+()[\]$ /]+$/;

/** @throws Problem invalid_field */
export function readCodeInput({ code, modules, main }: CodeInput): Sources {
  if ((code === undefined) === (modules === undefined)) {
    throw refused([{ pointer: '/code', detail: 'send either code, or modules with main' }]);
  }
  if (code !== undefined) {
    if (main !== undefined) throw refused([{ pointer: '/main', detail: 'goes with modules, not with code' }]);
    return { main: SINGLE, modules: [{ name: SINGLE, pointer: '/code', text: code }], single: true };
  }
  const entries = Object.entries(modules ?? {});
  const errors: FieldError[] = [];
  if (entries.length === 0 || entries.length > MAX_MODULES) {
    errors.push({ pointer: '/modules', detail: `takes 1 to ${MAX_MODULES} modules` });
  }
  const list = entries.map(([given, content]): SourceModule => {
    const pointer = `/modules/${given.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    const name = given.replace(/^\.\//, '');
    if (name.length > MAX_NAME || !NAME.test(name))
      errors.push({ pointer, detail: 'is not a name that a module may have' });
    return typeof content === 'string'
      ? { name, pointer, text: content }
      : { name, pointer, bytes: new Uint8Array(Buffer.from(content.base64, 'base64')) };
  });
  const names = new Set(list.map(({ name }) => name));
  if (names.size !== list.length) errors.push({ pointer: '/modules', detail: 'names a module twice' });
  const entry = (main ?? '').replace(/^\.\//, '');
  if (main === undefined) errors.push({ pointer: '/main', detail: 'is missing: the module with the default export' });
  else if (!names.has(entry))
    errors.push({ pointer: '/main', detail: `names no module: there is ${[...names].slice(0, 5).join(', ')}` });
  if (errors.length > 0) throw refused(errors);
  return { main: entry, modules: list, single: false };
}

function refused(errors: FieldError[]): Problem {
  return new Problem('invalid_field', `Not acceptable: ${errors.map((e) => `${e.pointer} ${e.detail}`).join('; ')}.`, {
    errors,
  });
}
