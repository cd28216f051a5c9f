/** The process that bundles what strangers send, when somebody's code is too much for it. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Bundler } from '../../host/runtime/deploy/bundle.ts';

const NESTED = `export default ${'['.repeat(2_000_000)}`;
/** Two million statements: seconds of work. */
const LONG = `let n = 0;${'n=n*3+1;'.repeat(2_000_000)}export default { fetch: () => new Response(String(n)) };`;
const innocent = (n: number) => ({ code: `export default { fetch: () => new Response('${n}') };` });

let bundler: Bundler;
beforeEach(() => {
  bundler = new Bundler({ maxBytes: 4_194_304 });
});
afterEach(() => bundler.close());

it('refuses code that ends the process, and bundles what others sent at the same time', {
  timeout: 60_000,
}, async () => {
  const others = Array.from({ length: 8 }, (_, n) => bundler.bundle(innocent(n)));
  const nested = bundler.bundle({ code: NESTED });
  const more = Array.from({ length: 8 }, (_, n) => bundler.bundle(innocent(n)));
  await expect(nested).rejects.toMatchObject({ code: 'code_rejected', message: expect.stringContaining('nested') });
  for (const bundle of await Promise.all([...others, ...more])) {
    expect(Object.values(bundle.modules).length).toBeGreaterThan(0);
  }
});

it('ends what computes for too long, and says that it is too complicated', async () => {
  bundler.close();
  bundler = new Bundler({ maxBytes: 64_000_000, cpuMs: 300 });
  await expect(bundler.bundle({ code: LONG })).rejects.toMatchObject({ code: 'code_rejected' });
  // The process is started anew for the next one.
  bundler.close();
});

it('does not blame the code where the machine gives it no time', async () => {
  bundler.close();
  bundler = new Bundler({ maxBytes: 64_000_000, timeoutMs: 200 });
  await expect(bundler.bundle({ code: LONG })).rejects.toMatchObject({ code: 'overloaded', status: 503 });
});

it('says that the host is stopping to whoever is interrupted by that', async () => {
  const under = bundler.bundle(innocent(1));
  bundler.close();
  await expect(under).rejects.toMatchObject({ code: 'not_ready' });
  await expect(bundler.bundle(innocent(2))).rejects.toMatchObject({ code: 'not_ready' });
});

it('keeps no map that is larger than code may be', async () => {
  bundler.close();
  bundler = new Bundler({ maxBytes: 80_000 });
  const calls = (count: number) => `const a = () => {}; export default { fetch() { ${'a();'.repeat(count)} } };`;
  expect((await bundler.bundle({ code: calls(1_000) })).sourceMap).toContain('"mappings"');
  expect((await bundler.bundle({ code: calls(9_000) })).sourceMap).toBeUndefined();
});
