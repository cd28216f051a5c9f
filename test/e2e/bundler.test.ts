/** The process that bundles what strangers send, when somebody's code is too much for it; and what workerd makes of a bundle. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Miniflare } from 'miniflare';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { bundleProject } from '../../host/runtime/bundle-project.ts';
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

it('refuses code that ends the process, and bundles what others sent at the same time', async () => {
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

/** Node's modules as old packages use them: by bare names, through require(), some as classes to extend. */
const OLD_PACKAGE = `const { createHash } = require('crypto');
class Emitter extends require('events') {}
module.exports = (text) => {
  let digest;
  new Emitter().on('text', (it) => { digest = createHash('sha256').update(it).digest('hex'); }).emit('text', text);
  return digest;
};`;
const SHA256_OF_X = '2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881';

async function answerOf(code: string): Promise<string> {
  const handler = new Miniflare({
    modules: true,
    script: code,
    compatibilityDate: '2026-01-01',
    compatibilityFlags: ['nodejs_compat'],
  });
  try {
    return await (await fetch(await handler.ready)).text();
  } finally {
    await handler.dispose();
  }
}

it("runs what uses Node's modules, sent as modules or bundled from a project", async () => {
  const entry = (from: string) =>
    `import hash from '${from}'; import crypto from 'crypto';
     export default { fetch: () => new Response(crypto.createHash ? hash('x') : 'none') };`;
  const sent = await bundler.bundle({
    main: 'index.js',
    modules: { 'index.js': entry('./hash.cjs'), 'hash.cjs': OLD_PACKAGE },
  });
  expect(await answerOf(Buffer.from(sent.modules[0]?.body ?? '').toString())).toBe(SHA256_OF_X);

  const folder = mkdtempSync(path.join(tmpdir(), 'project-'));
  try {
    mkdirSync(path.join(folder, 'node_modules/hash'), { recursive: true });
    writeFileSync(path.join(folder, 'node_modules/hash/package.json'), '{"name":"hash","main":"index.js"}');
    writeFileSync(path.join(folder, 'node_modules/hash/index.js'), OLD_PACKAGE);
    writeFileSync(path.join(folder, 'index.ts'), entry('hash'));
    const { modules, main } = await bundleProject(path.join(folder, 'index.ts'), { root: folder });
    expect(await answerOf(String(modules[main]))).toBe(SHA256_OF_X);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
