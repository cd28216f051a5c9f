/** What static files are by their names: as workerd's own service says it (1.20261117.1), which an instance answers with. */

const TYPES: Readonly<Record<string, string>> = {
  atom: 'application/atom+xml',
  gz: 'application/gzip',
  js: 'text/javascript; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
  cjs: 'text/javascript; charset=utf-8',
  json: 'application/json',
  map: 'application/json',
  jsonld: 'application/ld+json',
  webmanifest: 'application/manifest+json',
  pdf: 'application/pdf',
  rss: 'application/rss+xml',
  eot: 'application/vnd.ms-fontobject',
  wasm: 'application/wasm',
  tar: 'application/x-tar',
  xml: 'application/xml',
  zip: 'application/zip',
  mp3: 'audio/mpeg',
  m4a: 'audio/mp4',
  oga: 'audio/ogg',
  ogg: 'audio/ogg',
  wav: 'audio/wav',
  flac: 'audio/flac',
  otf: 'font/otf',
  ttf: 'font/ttf',
  woff: 'font/woff',
  woff2: 'font/woff2',
  apng: 'image/apng',
  avif: 'image/avif',
  bmp: 'image/bmp',
  gif: 'image/gif',
  jpeg: 'image/jpeg',
  jpg: 'image/jpeg',
  png: 'image/png',
  svg: 'image/svg+xml',
  ico: 'image/vnd.microsoft.icon',
  webp: 'image/webp',
  ics: 'text/calendar; charset=utf-8',
  css: 'text/css; charset=utf-8',
  csv: 'text/csv; charset=utf-8',
  html: 'text/html; charset=utf-8',
  htm: 'text/html; charset=utf-8',
  md: 'text/markdown; charset=utf-8',
  txt: 'text/plain; charset=utf-8',
  mp4: 'video/mp4',
  ogv: 'video/ogg',
  mov: 'video/quicktime',
  webm: 'video/webm',
};

/** What gets smaller: text, and formats that do not compress by themselves. */
const COMPRESSIBLE =
  /^(?:text\/|application\/(?:json|[a-z.-]+\+(?:json|xml)|xml|wasm|vnd\.ms-fontobject)|font\/(?:otf|ttf)|image\/(?:svg\+xml|bmp))/;

/** @returns undefined: none is said */
export function contentType(path: string): string | undefined {
  const name = path.slice(path.lastIndexOf('/') + 1);
  const dot = name.lastIndexOf('.');
  const extension = name.slice(dot + 1).toLowerCase();
  return dot >= 0 && Object.hasOwn(TYPES, extension) ? TYPES[extension] : undefined;
}

export function compressible(type: string | undefined): boolean {
  return type !== undefined && COMPRESSIBLE.test(type);
}
