/**
 * The `turnpike` command as an npm package, made of the host's own files: `npm install -g <host>/turnpike.tgz`. It is
 * plain JavaScript for Node 20 and newer; esbuild, which bundles projects, is its one dependency.
 */
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { build } from 'esbuild';

const HOST = fileURLToPath(new URL('..', import.meta.url));
const TEMPLATES = path.join(HOST, 'cli/templates');
/** Not used by the command, or found by npm. */
const EXTERNAL = ['esbuild', 'libsql', '@libsql/*', 'workerd', 'koffi', '@modelcontextprotocol/*'];
/** What Node 20 lacks of what the code uses. */
const OLDER_NODE =
  "import{createRequire as turnpikeRequire}from'node:module';const require=turnpikeRequire(import.meta.url);" +
  'Promise.withResolvers??=function(){let resolve,reject;const promise=new this((a,b)=>{resolve=a;reject=b});return{promise,resolve,reject}};';
const BLOCK = 512;

let made: Promise<Uint8Array> | undefined;

/** @returns a gzipped tar archive, made when it is first asked for */
export function commandPackage(version: string): Promise<Uint8Array> {
  made ??= pack(version).catch((error) => {
    made = undefined;
    throw error;
  });
  return made;
}

async function pack(version: string): Promise<Uint8Array> {
  const { outputFiles } = await build({
    absWorkingDir: HOST,
    entryPoints: [path.join(HOST, 'cli/client-main.ts')],
    bundle: true,
    splitting: true,
    write: false,
    outdir: '/dist',
    format: 'esm',
    platform: 'node',
    target: 'node20',
    mainFields: ['module', 'main'],
    minify: true,
    // Errors are told apart by the names of their classes.
    keepNames: true,
    legalComments: 'none',
    external: EXTERNAL,
    define: { TURNPIKE_VERSION: JSON.stringify(version) },
    banner: { js: OLDER_NODE },
    logLevel: 'silent',
  });
  const { dependencies } = JSON.parse(await readFile(path.join(HOST, '../package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  const manifest = {
    name: 'turnpike',
    version,
    description: 'Deploys HTTP handlers to a Turnpike host, and pays.',
    license: 'Apache-2.0',
    type: 'module',
    bin: { turnpike: 'dist/client-main.js' },
    engines: { node: '>=20.12' },
    dependencies: { esbuild: dependencies.esbuild },
  };
  const entries: [name: string, content: Uint8Array][] = [
    ['package.json', Buffer.from(JSON.stringify(manifest, null, 2))],
  ];
  for (const { path: file, contents } of outputFiles) {
    const isEntry = file === '/dist/client-main.js';
    entries.push([file.slice(1), isEntry ? Buffer.concat([Buffer.from('#!/usr/bin/env node\n'), contents]) : contents]);
  }
  for (const entry of await readdir(TEMPLATES, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = path.join(entry.parentPath, entry.name);
    entries.push([`dist/templates/${path.relative(TEMPLATES, file).split(path.sep).join('/')}`, await readFile(file)]);
  }
  const parts = entries.flatMap(([name, content]) => [
    header(`package/${name}`, content.length),
    content,
    padding(content.length),
  ]);
  return promisify(gzip)(Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]));
}

/** The head of a regular file in a POSIX.1-1988 archive (ustar). @throws Error for a name that it cannot hold */
function header(name: string, size: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  if (Buffer.byteLength(name) > 100) throw new Error(`The name is too long for an archive: ${name}`);
  block.write(name, 0);
  const number = (value: number, at: number, length: number) =>
    block.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at);
  number(name.endsWith('client-main.js') ? 0o755 : 0o644, 100, 8);
  number(0, 108, 8);
  number(0, 116, 8);
  number(size, 124, 12);
  // Always the same bytes for the same content, as npm does.
  number(499_162_500, 136, 12);
  block.fill(' ', 148, 156);
  block.write('0', 156);
  block.write('ustar\0', 257);
  block.write('00', 263);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return block;
}

function padding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}
