/** A free page of the host and the HTML around it. Our pages carry no script; the policy says so. */
import type { EdgeContext } from '../../shared/contracts.ts';

/** Where a host gives out the command (host/control/command-package.ts). */
export const COMMAND_PATH = '/turnpike.tgz';

export interface Page {
  path: string;
  render(context: EdgeContext): Response | Promise<Response>;
}

const POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --accent: light-dark(#2563eb, #7aa2ff); }
* { box-sizing: border-box }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; overflow-wrap: break-word }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem } h2 { margin: 2.2rem 0 .6rem; font-size: 1.25rem }
h3 { margin: 1.6rem 0 .3rem; font-size: 1rem } p { margin: .5rem 0 } a { color: var(--accent) }
pre { background: #8881; border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.5 }
code { font-family: ui-monospace, monospace; font-size: .92em } table { border-collapse: collapse; width: 100%; font-size: .93rem }
td, th { text-align: left; padding: .4rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
td:last-child { overflow-wrap: anywhere }
.note { border: 1px solid #d97706; background: #d9770618; border-radius: 8px; padding: .6rem 1rem }
.tag { border: 1px solid var(--line); border-radius: 99px; padding: 0 .6em; font-size: .8rem; white-space: nowrap }
.muted { opacity: .72 }
`;

/** @param body HTML that is safe already; use `escapeHtml` for anything from outside */
export function htmlPage(title: string, body: string): Response {
  const html = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title><style>${STYLE}</style></head>
<body>${body}</body></html>
`;
  return new Response(html, {
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': POLICY,
      'cache-control': 'no-cache',
    },
  });
}

export function textPage(text: string, type = 'text/plain'): Response {
  return new Response(text, { headers: { 'content-type': `${type}; charset=utf-8`, 'cache-control': 'no-cache' } });
}

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
