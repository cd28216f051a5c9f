/** The rules of the house about who may import whom, checked on the sources themselves. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

function sources(folder: string): string[] {
  return (
    readdirSync(path.join(ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.(ts|tsx|mts)$/.test(entry.name))
      .map((entry) => path.join(entry.parentPath, entry.name))
      // Templates are no part of the host: they are what a tenant's project begins with.
      .filter((file) => !/\/(node_modules|cli\/templates)\//.test(file))
  );
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

/** Groups of names that import each other in a circle, types included; each group is sorted, and joined by spaces. */
function circles(targets: ReadonlyMap<string, ReadonlySet<string>>): string[] {
  const reached = new Map<string, Set<string>>();
  for (const start of targets.keys()) {
    const seen = new Set<string>();
    const next = [start];
    for (let at = next.pop(); at !== undefined; at = next.pop()) {
      for (const target of targets.get(at) ?? []) {
        if (seen.has(target)) continue;
        seen.add(target);
        next.push(target);
      }
    }
    reached.set(start, seen);
  }
  const groups = [...reached].map(([name, seen]) => [...seen].filter((other) => reached.get(other)?.has(name)).sort());
  return [...new Set(groups.filter((group) => group.length > 1).map((group) => group.join(' ')))].sort();
}

/** The imports between the units of a folder. @param unit maps a file to its unit: the file itself, or its folder */
function graph(folder: string, unit: (file: string) => string): Map<string, Set<string>> {
  const targets = new Map<string, Set<string>>();
  for (const file of sources(folder)) {
    const from = unit(path.relative(ROOT, file));
    const known = targets.get(from) ?? new Set();
    targets.set(from, known);
    for (const target of imports(file)) if (target.startsWith(`${folder}/`)) known.add(unit(target));
  }
  return targets;
}

describe('the rules of the house', () => {
  it.each(['edge', 'bindings', 'egress', 'runtime', 'sandbox'])('%s imports neither payments nor control', (part) => {
    expect(offenders(`host/${part}`, (target) => /^host\/(payments|control)\//.test(target))).toEqual([]);
  });

  it('nobody but the supervisor imports edge', () => {
    const found = offenders('host', (target) => target.startsWith('host/edge/'));
    expect(found.filter((line) => !/^host\/(edge|supervisor)\//.test(line))).toEqual([]);
    expect(found.filter((line) => line.startsWith('host/supervisor/'))).not.toEqual([]);
  });

  it.each(['http', 'sandbox', 'capnp'])('%s imports only what it is made of and shared', (name) => {
    const own = new RegExp(`^host/(${name}|shared)/`);
    expect(offenders(`host/${name}`, (target) => !own.test(target))).toEqual([]);
  });

  it('message imports no other folder of http', () => {
    expect(offenders('host/http/message', (target) => !/^host\/(http\/message|shared)\//.test(target))).toEqual([]);
  });

  it('no folder of the host imports another in a circle', () => {
    expect(circles(graph('host', (file) => file.split('/').slice(0, 2).join('/')))).toEqual([]);
  });

  it.each(['edge', 'http'])('no folders within %s import each other in a circle', (name) => {
    expect(circles(graph(`host/${name}`, (file) => path.dirname(file)))).toEqual([]);
  });

  it('no file imports itself in a circle', () => {
    // By their names alone: an R2 error carries the row it is about, and uploads are a part of the store they change.
    const known = ['errors.ts objects.ts ranges.ts requests.ts', 'multipart.ts store.ts'];
    const names = (circle: string) =>
      circle
        .split(' ')
        .map((file) => path.basename(file))
        .join(' ');
    expect(circles(graph('host', (file) => file)).filter((circle) => !known.includes(names(circle)))).toEqual([]);
  });

  it('circles are found', () => {
    const imported = { a: ['b', 'a'], b: ['c'], c: ['b', 'd'], d: ['e'], e: ['d'], f: ['f'] };
    const targets = new Map(Object.entries(imported).map(([name, names]) => [name, new Set(names)]));
    expect(circles(targets)).toEqual(['b c', 'd e']);
  });

  it('the host serves tenants before it loads the packages of payments', () => {
    const seen = new Set([path.join(ROOT, 'host/supervisor/host.ts')]);
    const found: string[] = [];
    for (const file of seen) {
      // Examples in the text of a page are no imports of its file.
      const [head = ''] = readFileSync(file, 'utf8').split(/^(?!import|export .* from|[ }/*]|$)/m, 1);
      for (const [, target = ''] of head.matchAll(/^(?:import|export)(?! type)[^;']*?'([^']+)'/gm)) {
        if (/^(?:viem|mppx|@x402)\b/.test(target)) found.push(`${path.relative(ROOT, file)} imports ${target}`);
        if (target.startsWith('.') && target.endsWith('.ts')) seen.add(path.resolve(path.dirname(file), target));
      }
    }
    expect(seen.size).toBeGreaterThan(100);
    expect(found).toEqual([]);
  });

  it('the packages of Solana are loaded only by what is itself loaded where Solana is configured', () => {
    const users = [
      ...['rail.ts', 'settlers.ts', 'transaction.ts'].map((name) => `host/payments/methods/x402/solana/${name}`),
      ...['solana-troubles.ts', 'solana.ts'].map((name) => `host/payments/network/${name}`),
    ];
    const large = sources('host').filter((file) =>
      /^[^/]* from '(?:@solana|@x402\/svm)/m.test(readFileSync(file, 'utf8')),
    );
    expect(large.map((file) => path.relative(ROOT, file)).sort()).toEqual(users);
    const others = sources('host').filter((file) => !users.includes(path.relative(ROOT, file)));
    const atOnce = others.filter((file) => {
      const targets = [...readFileSync(file, 'utf8').matchAll(/ from '(\.[^']+)'/g)].map(([, target = '']) => target);
      return targets.some((target) => users.includes(path.relative(ROOT, path.resolve(path.dirname(file), target))));
    });
    expect(atOnce).toEqual([]);
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

  it('no file of the host knows a built-in tenant by its name', () => {
    const names = readdirSync(path.join(ROOT, 'builtin-tenants'), { withFileTypes: true })
      .filter((entry) => existsSync(path.join(entry.parentPath, entry.name, 'turnpike.json')))
      .map(({ name }) => name);
    expect(names.length).toBeGreaterThan(2);
    const named = new RegExp(`['"\`](?:${names.join('|')})['"\`]|^ {2}(?:${names.join('|')}): '`, 'm');
    // The command line has commands for what the pay platform offers.
    const others = sources('host').filter((file) => !file.startsWith(path.join(ROOT, 'host/cli')));
    const naming = others.filter((file) => named.test(readFileSync(file, 'utf8')));
    expect(naming.map((file) => path.relative(ROOT, file))).toEqual([]);
    expect(named.test("if (slug === 'pay') return;")).toBe(true);
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
