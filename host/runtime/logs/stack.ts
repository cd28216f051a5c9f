/** Turns places in bundled code into places in the owner's files, in error stacks; workerd does not read source maps. */
import { SourceMap, type SourceMapPayload } from 'node:module';

/**
 * `name:line:column` at the end of a stack line, with or without parentheses. The name is tried from its first character
 * on alone: from each of them, a text of 60,000 letters would take ten seconds.
 */
const PLACE = /(?<![^\s():])([^\s():]+):(\d+):(\d+)(\)?)$/gm;

/**
 * @param entry name of the module that the map belongs to
 * @param sourceMap JSON text of the map; undefined: stacks stay as they are
 */
export function createStackMapper(entry: string, sourceMap: string | undefined): (stack: string) => string {
  if (sourceMap === undefined) return (stack) => stack;
  let map: SourceMap | undefined;
  return (stack) => {
    map ??= parse(sourceMap);
    const known = map;
    if (!known) return stack;
    return stack.replace(PLACE, (whole, name: string, line: string, column: string, close: string) => {
      if (name !== entry) return whole;
      const found = known.findEntry(Number(line) - 1, Number(column) - 1);
      if (!('originalSource' in found) || found.originalSource === undefined) return whole;
      return `${found.originalSource}:${found.originalLine + 1}:${found.originalColumn + 1}${close}`;
    });
  };
}

function parse(text: string): SourceMap | undefined {
  try {
    return new SourceMap(JSON.parse(text) as SourceMapPayload);
  } catch {
    return undefined;
  }
}
