/** Places of bundled code in error stacks become places in the owner's files. */
import { SourceMap, type SourceMapPayload } from 'node:module';
import { build } from 'esbuild';
import { describe, expect, it } from 'vitest';
import { Mappings } from '../../host/runtime/logs/mappings.ts';
import { createStackMapper } from '../../host/runtime/logs/stack.ts';
import { expectTime } from '../times.ts';

describe('stacks', () => {
  // One line of output for the third line of the source.
  const map = JSON.stringify({ version: 3, sources: ['src/a.ts'], names: [], mappings: ';AAEE' });

  it('maps places of the bundled module only', () => {
    const mapStack = createStackMapper('index.js', map);
    expect(mapStack('Error: x\n    at f (index.js:2:1)\n    at g (other.js:2:1)')).toBe(
      'Error: x\n    at f (src/a.ts:3:3)\n    at g (other.js:2:1)',
    );
  });

  it('takes no time for a long text without places', () => {
    const mapStack = createStackMapper('index.js', map);
    const text = 'a'.repeat(60_000);
    const startedAt = performance.now();
    expect(mapStack(text)).toBe(text);
    expectTime('a long text', performance.now() - startedAt, 200);
  });

  it('leaves stacks alone without a map, or with a broken one', () => {
    expect(createStackMapper('index.js', undefined)('at index.js:2:1')).toBe('at index.js:2:1');
    expect(createStackMapper('index.js', 'no json')('at index.js:2:1')).toBe('at index.js:2:1');
  });
});

describe('mappings', () => {
  it.each([false, true])('lead to where Node finds it, minified: %s', async (minify) => {
    const entry = new URL('../../builtin-tenants/speech/engine/read/document.ts', import.meta.url).pathname;
    const { outputFiles } = await build({
      entryPoints: [entry],
      bundle: true,
      write: false,
      outfile: 'index.js',
      platform: 'node',
      packages: 'external',
      sourcemap: 'external',
      minify,
    });
    const [map, code] = outputFiles.toSorted((a, b) => b.path.localeCompare(a.path)).map(({ text }) => text);
    const payload = JSON.parse(map ?? '') as SourceMapPayload;
    const node = new SourceMap(payload);
    const mappings = new Mappings(payload.mappings);
    for (const [line, text] of (code ?? '').split('\n').entries()) {
      for (let column = 0; column <= text.length; column += 3) {
        const entry = node.findEntry(line, column);
        const expected =
          'originalSource' in entry && entry.originalSource !== undefined
            ? {
                source: payload.sources.indexOf(entry.originalSource),
                line: entry.originalLine,
                column: entry.originalColumn,
              }
            : undefined;
        expect(mappings.find(line, column), `${line}:${column}`).toEqual(expected);
      }
    }
  });

  it('of the largest code there may be take little memory', () => {
    const map = JSON.stringify({
      version: 3,
      sources: ['a.ts'],
      names: [],
      mappings: `AAAA${',CAAC'.repeat(2_000_000)}`,
    });
    const mapStack = createStackMapper('index.js', map);
    const before = process.memoryUsage().heapUsed;
    expect(mapStack('at index.js:1:1000001')).toBe('at a.ts:1:1000001');
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(100_000_000);
  });
});
