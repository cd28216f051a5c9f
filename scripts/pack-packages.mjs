// Packs the packages of payments, and others of many modules, into a few files. They are some 2,100 modules, and to find,
// read and link them takes most of a host's start: 1.4 s of CPU where the packed ones take 0.3 s, and 100 MB of memory more.
// `node scripts/pack-packages.mjs <folder>`; host/shared/packed-packages.ts uses what is made. Plain JavaScript for Node
// 18 and newer.
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/** All that the host imports of these packages: a module that came from both places would be two modules. */
const PACKED = [
  '@libsql/client/sqlite3',
  '@noble/curves/secp256k1',
  '@x402/core/client',
  '@x402/core/facilitator',
  '@x402/evm',
  '@x402/evm/batch-settlement/client',
  '@x402/evm/batch-settlement/facilitator',
  '@x402/evm/exact/client',
  '@x402/evm/exact/facilitator',
  '@x402/evm/upto/client',
  '@x402/evm/upto/facilitator',
  'drizzle-orm',
  'drizzle-orm/libsql/sqlite3',
  'drizzle-orm/sqlite-core',
  'hono',
  'mppx',
  'mppx/client',
  'mppx/server',
  'mppx/tempo',
  'ox/tempo',
  'viem',
  'viem/accounts',
  'viem/actions',
  'viem/chains',
  'viem/tempo',
  'viem/utils',
];

/** The same of CommonJS: esbuild alone would give them no names. */
const PACKED_COMMONJS = ['capnp-ts', 'prom-client'];
const COMMONJS = 'commonjs:';
/** What Node adds when it imports them. */
const NO_NAMES = ['default', 'module.exports', '__esModule'];

/** Also the host's own, only loaded by who has them, or no JavaScript. */
const LEFT_OUT = ['zod', 'zod/*', 'hono/*', '@modelcontextprotocol/*', 'libsql'];

/** Older ones that stay: a host that still runs loads some pieces late. */
const KEPT = 2;
const UNFINISHED = '.unfinished-';
/** Who packs is done long before, ms; what is older was left by one that was killed. */
const ABANDONED_MS = 600_000;

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

/** @type {import('esbuild').Plugin} */
const namesOfCommonJs = {
  name: 'names of CommonJS',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: new RegExp(`^${COMMONJS}`) }, ({ path }) => {
      return { path: path.slice(COMMONJS.length), namespace: COMMONJS };
    });
    onLoad({ filter: /.*/, namespace: COMMONJS }, async ({ path }) => {
      const names = Object.keys(await import(path)).filter((name) => !NO_NAMES.includes(name));
      const contents = `const all = require('${path}'); export default all; export const { ${names.join(', ')} } = all;`;
      return { contents, resolveDir: ROOT };
    });
  },
};

/** @param {string} folder it is there when this is done, with an `index.json` of package names and files */
async function packPackages(folder) {
  const parent = dirname(folder);
  mkdirSync(parent, { recursive: true });
  const unfinished = mkdtempSync(join(parent, UNFINISHED));
  try {
    await build({
      absWorkingDir: ROOT,
      entryPoints: [
        ...PACKED.map((name) => ({ in: name, out: fileName(name) })),
        ...PACKED_COMMONJS.map((name) => ({ in: `${COMMONJS}${name}`, out: fileName(name) })),
      ],
      plugins: [namesOfCommonJs],
      outdir: unfinished,
      outExtension: { '.js': '.mjs' },
      bundle: true,
      splitting: true,
      format: 'esm',
      platform: 'node',
      target: 'node24',
      // Errors are told apart by the names of their classes.
      keepNames: true,
      external: LEFT_OUT,
      // For what is CommonJS among them.
      banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
      logLevel: 'silent',
    });
    const index = Object.fromEntries([...PACKED, ...PACKED_COMMONJS].map((name) => [name, `${fileName(name)}.mjs`]));
    writeFileSync(join(unfinished, 'index.json'), JSON.stringify(index));
    renameSync(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  removeOld(parent, basename(folder));
}

function fileName(name) {
  return name.replaceAll('/', '+');
}

function removeOld(parent, present) {
  const others = readdirSync(parent)
    .filter((name) => name !== present)
    .map((name) => ({ name, at: statSync(join(parent, name)).mtimeMs }))
    .sort((a, b) => b.at - a.at);
  const isUnfinished = ({ name }) => name.startsWith(UNFINISHED);
  const old = others.filter((one) => !isUnfinished(one)).slice(KEPT);
  const abandoned = others.filter((one) => isUnfinished(one) && Date.now() - one.at > ABANDONED_MS);
  for (const { name } of [...old, ...abandoned]) rmSync(join(parent, name), { recursive: true, force: true });
}

await packPackages(process.argv[2]);
