/** Turns places in bundled code into places in the owner's files, in error stacks; workerd does not read source maps. */
import { Mappings } from './mappings.ts';

/**
 * `name:line:column` at the end of a stack line, with or without parentheses. The name is tried from its first character
 * on alone: from each of them, a text of 60,000 letters would take ten seconds.
 */
const PLACE = /(?<![^\s():])([^\s():]+):(\d+):(\d+)(\)?)$/gm;

interface SourceMap {
  sources: readonly string[];
  mappings: Mappings;
}

/**
 * @param entry name of the module that the map belongs to
 * @param sourceMap JSON text of the map; undefined: stacks stay as they are
 */
export function createStackMapper(entry: string, sourceMap: string | undefined): (stack: string) => string {
  if (sourceMap === undefined) return (stack) => stack;
  let map: SourceMap | undefined;
  return (stack) => {
    map ??= parse(sourceMap);
    const { sources, mappings } = map;
    return stack.replace(PLACE, (whole, name: string, line: string, column: string, close: string) => {
      if (name !== entry) return whole;
      const found = mappings.find(Number(line) - 1, Number(column) - 1);
      const source = sources[found?.source ?? -1];
      return found === undefined || source === undefined
        ? whole
        : `${source}:${found.line + 1}:${found.column + 1}${close}`;
    });
  };
}

function parse(text: string): SourceMap {
  try {
    const { sources, mappings } = JSON.parse(text) as { sources: string[]; mappings: string };
    return { sources, mappings: new Mappings(mappings) };
  } catch {
    return { sources: [], mappings: new Mappings('') };
  }
}
