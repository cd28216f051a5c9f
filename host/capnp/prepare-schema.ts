/**
 * Turns workerd's own schema into one that Debian's capnp compiler and capnpc-ts can read.
 * The result is committed, so that a test can tell when an upgraded workerd has another schema.
 */

/** @param text `workerd.capnp` as workerd ships it; @returns the same schema without comments and C++ annotations */
export function prepareSchema(text: string): string {
  return `${text
    // Annotations of c++.capnp (namespace, allowCancellation): nothing here generates C++.
    .replace(/^using Cxx = .*\n/m, '')
    .replace(/^\$Cxx\..*\n/gm, '')
    // A bare string for a struct's first field is a shorthand that compilers before 1.0 do not know.
    .replace(
      'globalOutbound @6 :ServiceDesignator = "internet"',
      'globalOutbound @6 :ServiceDesignator = (name = "internet")',
    )
    .replace(/^\s*#.*\n/gm, '')
    .replace(/\n{2,}/g, '\n')
    .trim()}\n`;
}
