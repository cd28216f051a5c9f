/** The rules of the house about who may import whom, checked on the sources themselves. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

function sources(folder: string): string[] {
  return readdirSync(path.join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|tsx|mts)$/.test(entry.name))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => !file.includes(`${path.sep}node_modules${path.sep}`));
}

/** Relative imports of a file, as paths from the root. */
function imports(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.{1,2}\/[^']+)'/g)].map(([, target]) =>
    path.relative(ROOT, path.resolve(path.dirname(file), target ?? '')),
  );
}

function offenders(folder: string, forbidden: (target: string) => boolean): string[] {
  return sources(folder).flatMap((file) =>
    imports(file)
      .filter(forbidden)
      .map((target) => `${path.relative(ROOT, file)} imports ${target}`),
  );
}

describe('the rules of the house', () => {
  it.each(['edge', 'storage', 'egress', 'runtime'])('%s imports neither payments nor control', (part) => {
    expect(offenders(`host/${part}`, (target) => /^host\/(payments|control)\//.test(target))).toEqual([]);
  });

  it('shared imports nothing of ours', () => {
    expect(offenders('host/shared', (target) => !target.startsWith('host/shared/'))).toEqual([]);
  });

  it('the local network knows nothing of payments', () => {
    expect(offenders('host/local-network', (target) => !/^host\/(local-network|shared)\//.test(target))).toEqual([]);
  });

  it('built-in tenants import nothing from the host', () => {
    expect(offenders('builtin-tenants', (target) => target.startsWith('host/'))).toEqual([]);
  });

  it('no program imports tests', () => {
    expect([
      ...offenders('host', (t) => t.startsWith('test/')),
      ...offenders('scripts', (t) => t.startsWith('test/')),
    ]).toEqual([]);
  });

  it('drizzle is loaded by one file only, which knows the quick way', () => {
    const loads =
      /^import (?!type )[^;]*from '(?:drizzle-orm|@libsql\/client)\b|require\('(?:drizzle-orm|@libsql\/client)\b/m;
    const loading = sources('host').filter((file) => loads.test(readFileSync(file, 'utf8')));
    expect(loading.map((file) => path.relative(ROOT, file))).toEqual(['host/registry/drizzle.ts']);
  });

  it('the registry imports only what is shared, and nobody else writes SQL with drizzle', () => {
    expect(offenders('host/registry', (target) => !/^host\/(registry|shared)\//.test(target))).toEqual([]);
    const others = sources('host').filter((file) => !file.startsWith(path.join(ROOT, 'host/registry')));
    const drizzling = others.filter((file) =>
      /'(?:drizzle-orm\b|[^']*registry\/drizzle\.ts)/.test(readFileSync(file, 'utf8')),
    );
    expect(drizzling.map((file) => path.relative(ROOT, file))).toEqual([]);
    expect(sources('host/registry').some((file) => /'\.\.?\/drizzle\.ts'/.test(readFileSync(file, 'utf8')))).toBe(true);
  });

  it('nothing outside of payments/methods asks by which method something is paid', () => {
    const asks = /\bvia\b.{0,4}(?:===|!==|:) '(?:mpp|x402)'|'(?:tempo|x402)\/|rail\.startsWith\(/;
    const others = sources('host').filter((file) => !file.startsWith(path.join(ROOT, 'host/payments/methods')));
    const asking = others.filter((file) => asks.test(readFileSync(file, 'utf8')));
    expect(asking.map((file) => path.relative(ROOT, file))).toEqual([]);
    expect(asks.test("if (presented.via === 'x402') return;")).toBe(true);
  });

  it('bodies of requests are read whole in one place, which has a budget', () => {
    const whole = /\b(?:request|req|c\.req(?:\.raw)?|call\.request)\.(?:arrayBuffer|text|json|formData|bytes|blob)\(/;
    // Runs inside of a handler's process.
    const inside = ['host/runtime/system-worker.ts'];
    const reading = sources('host').filter((file) => whole.test(readFileSync(file, 'utf8')));
    expect(reading.map((file) => path.relative(ROOT, file)).filter((file) => !inside.includes(file))).toEqual([]);
    expect(whole.test('const text = await request.text();')).toBe(true);
  });

  it('the checks see imports at all', () => {
    expect(offenders('host/control', (target) => target.startsWith('host/shared/')).length).toBeGreaterThan(5);
  });
});
