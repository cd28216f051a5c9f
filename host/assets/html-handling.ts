/**
 * Which file answers at a path, as `html_handling` and `not_found_handling` say. Written after handler.ts in
 * workers-shared/asset-worker of Cloudflare's workers-sdk (MIT or Apache-2.0).
 */

export interface Handling {
  html: string;
  notFound: string;
  has(file: string): boolean;
}

type Step =
  /** The file answers, where it is there. */
  | [file: string]
  /** Another path is where the file answers, where it is there. */
  | [file: string, path: string];

/** What is tried in turn. */
function steps(html: string, path: string): Step[] {
  const without = (end: string) => path.slice(0, -end.length);
  switch (html) {
    case 'auto-trailing-slash': {
      const rest: Step[] = [[path], [`${path}.html`], [`${path}/index.html`, `${path}/`]];
      if (path.endsWith('/index')) {
        const folder = without('/index');
        return [[path], [`${path}.html`, without('index')], [`${folder}.html`, folder], ...rest];
      }
      if (path.endsWith('/index.html')) {
        const folder = without('/index.html');
        return [[path, without('index.html')], [`${folder}.html`, folder], ...rest];
      }
      if (path.endsWith('/')) return [[`${path}index.html`], [`${without('/')}.html`, without('/')], ...rest];
      if (!path.endsWith('.html')) return rest;
      const name = without('.html');
      return [[path, name], [`${name}/index.html`, `${name}/`], ...rest];
    }
    case 'force-trailing-slash': {
      const rest: Step[] = [[path], [`${path}.html`, `${path}/`], [`${path}/index.html`, `${path}/`]];
      if (path.endsWith('/index')) {
        const page = without('index');
        return [[path], [`${path}.html`, page], [`${without('/index')}.html`, page], ...rest];
      }
      if (path.endsWith('/index.html')) {
        const page = without('index.html');
        return [[path, page], [`${without('/index.html')}.html`, page], ...rest];
      }
      if (path.endsWith('/')) return [[`${path}index.html`], [`${without('/')}.html`], ...rest];
      if (!path.endsWith('.html')) return rest;
      const page = `${without('.html')}/`;
      return [[path, page], [path], [`${page}index.html`, page], ...rest];
    }
    case 'drop-trailing-slash': {
      const rest: Step[] = [[path], [`${path}.html`], [`${path}/index.html`]];
      if (path === '/index') return [[path], ['/index.html', '/'], ...rest];
      if (path === '/index.html') return [[path, '/'], ...rest];
      if (path.endsWith('/index')) {
        const page = without('/index');
        return [[path], [`${page}.html`, page], [`${path}.html`, page], ...rest];
      }
      if (path.endsWith('/index.html')) {
        const page = without('/index.html');
        return [[path, page], [path], [`${page}.html`, page], ...rest];
      }
      if (path === '/') return [['/index.html'], ...rest];
      if (path.endsWith('/')) {
        const page = without('/');
        return [[`${page}.html`, page], [`${page}/index.html`, page], ...rest];
      }
      if (!path.endsWith('.html')) return rest;
      const page = without('.html');
      return [[path, page], [`${page}/index.html`, page], ...rest];
    }
    default:
      return [[path]];
  }
}

/** The file that stands for what is not there. */
function notFoundPage(path: string, { notFound, has }: Handling): string | undefined {
  if (notFound === 'single-page-application') return has('/index.html') ? '/index.html' : undefined;
  if (notFound !== '404-page') return undefined;
  for (let folder = path; folder !== ''; ) {
    folder = folder.slice(0, Math.max(0, folder.lastIndexOf('/')));
    if (has(`${folder}/404.html`)) return `${folder}/404.html`;
  }
  return undefined;
}

function answering(path: string, handling: Handling, redirects: boolean): { file: string; found: boolean } | undefined {
  const { has, html } = handling;
  for (const [file, page] of steps(html, path)) {
    if (page === undefined) {
      if (has(file)) return { file, found: true };
    } else if (redirects && has(file) && !has(page) && answering(page, handling, false)?.file === file)
      return undefined;
  }
  const file = notFoundPage(path, handling);
  return file === undefined ? undefined : { file, found: false };
}

/** @returns the file that is the answer (200) at a decoded path; undefined: a redirect, a page for what is not there, or nothing */
export function fileAt(path: string, handling: Handling): string | undefined {
  const answer = answering(path, handling, true);
  return answer?.found ? answer.file : undefined;
}

/** The decoded paths at which a file may be the answer. */
export function placesOf(file: string): string[] {
  const places = [file];
  if (file.endsWith('.html')) places.push(file.slice(0, -5), `${file.slice(0, -5)}/`);
  if (file.endsWith('/index.html')) places.push(file.slice(0, -11), file.slice(0, -10));
  return places.filter((place) => place !== '');
}
