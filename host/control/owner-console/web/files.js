// What was dropped or chosen, as the body of a deploy: one module, or a folder with its manifest.

const MODULE = /\.(?:[cm]?[jt]sx?|json|wasm|bin|txt|html|sql|css|md)$/i;
const BINARY = /\.(?:wasm|bin)$/i;
const SKIPPED = /(?:^|\/)(?:node_modules|dist|\.[^/]+)\//;
const ENTRIES = [
  'index.ts',
  'index.js',
  'index.mjs',
  'src/index.ts',
  'src/index.js',
  'main.ts',
  'main.js',
  'worker.ts',
  'worker.js',
];
/** Of turnpike.json, what a deploy takes as it is. */
const SETTINGS = [
  'bindings',
  'vars',
  'crons',
  'paidRoutes',
  'payTo',
  'notify',
  'compatibilityDate',
  'compatibilityFlags',
];
const MOST_FILES = 2_000;

/** The files of a drop, with their paths. */
export async function dropped({ items, files }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (entries.length === 0) return [...files].map((file) => ({ path: file.name, file }));
  const all = [];
  for (const entry of entries) await walk(entry, '', all);
  return all;
}

async function walk(entry, folder, all) {
  const path = `${folder}${entry.name}`;
  if (all.length > MOST_FILES || SKIPPED.test(`${path}/`)) return;
  if (entry.isFile) {
    all.push({ path, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return;
    for (const one of some) await walk(one, `${path}/`, all);
  }
}

export function chosen(list) {
  return [...list].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

/**
 * @returns `{names, entries, main, slug, settings, notes, modules()}`: what is sent, and what the manifest says
 * @throws Error for what cannot be deployed
 */
export async function project(all) {
  const kept = all.filter(({ path }) => !SKIPPED.test(path));
  if (kept.length === 0) throw new Error('There is no file in it.');
  if (kept.length > MOST_FILES)
    throw new Error(`That are more than ${MOST_FILES} files. Leave out what the handler does not import.`);
  const root = commonFolder(kept.map(({ path }) => path));
  const files = new Map(kept.map(({ path, file }) => [path.slice(root.length), file]));
  const notes = [];
  const manifestFile = files.get('turnpike.json');
  const manifest = manifestFile ? parsed(await manifestFile.text(), 'turnpike.json') : {};
  if (!manifestFile && [...files.keys()].some((path) => /^wrangler\.(?:jsonc?|toml)$/.test(path)))
    notes.push('wrangler’s configuration is not read here: choose bindings below, or use turnpike deploy.');
  if (manifest.assets) notes.push('Static files (assets) are not sent from here: use turnpike update for them.');
  const sent = [...files].filter(
    ([path]) => MODULE.test(path) && !/^(?:turnpike|wrangler|package(?:-lock)?|tsconfig)\.jsonc?$/.test(path),
  );
  const entries = sent.map(([path]) => path).filter((path) => /\.[cm]?[jt]sx?$/.test(path) && !/\.d\.ts$/.test(path));
  if (entries.length === 0) throw new Error('There is no JavaScript or TypeScript file in it.');
  const named = typeof manifest.entry === 'string' ? manifest.entry.replace(/^\.\//, '') : undefined;
  const main = [named, ...ENTRIES, entries[0]].find((path) => path !== undefined && entries.includes(path));
  return {
    names: sent.map(([path]) => path),
    entries,
    main,
    slug: typeof manifest.slug === 'string' ? manifest.slug : undefined,
    settings: Object.fromEntries(
      SETTINGS.filter((name) => manifest[name] !== undefined).map((name) => [name, manifest[name]]),
    ),
    secrets: Object.keys(manifest.secrets ?? {}),
    notes,
    size: sent.reduce((sum, [, file]) => sum + file.size, 0),
    async modules() {
      const pairs = await Promise.all(
        sent.map(async ([path, file]) => [
          path,
          BINARY.test(path) ? { base64: await base64(file) } : await file.text(),
        ]),
      );
      return Object.fromEntries(pairs);
    },
  };
}

function commonFolder(paths) {
  const first = paths[0].split('/').slice(0, -1);
  const same = first.filter((_, index) =>
    paths.every((path) => path.startsWith(`${first.slice(0, index + 1).join('/')}/`)),
  );
  return same.length === 0 ? '' : `${same.join('/')}/`;
}

function parsed(text, name) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} is no JSON.`);
  }
}

async function base64(file) {
  const all = new Uint8Array(await file.arrayBuffer());
  let text = '';
  for (let at = 0; at < all.length; at += 32_768) text += String.fromCharCode(...all.subarray(at, at + 32_768));
  return btoa(text);
}
