/** The frame of every page. No scripts at all; the one stylesheet is a file of our own. */
import { html } from 'hono/html';
import type { Visitor } from './visitor.ts';

type Html = ReturnType<typeof html>;

/** Everything a page of ours may load, and who may frame it: nobody. */
export const PAGE_HEADERS: Record<string, string> = {
  'content-security-policy':
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** @param narrow for forms */
export function page(title: string, visitor: Visitor, body: Html | Promise<Html>, narrow = false) {
  const who = visitor.human
    ? html`<form class="who" method="post" action="/sign-out">
        <span>${visitor.human.email}</span>${csrfField(visitor)}
        <button class="quiet small">Sign out</button>
      </form>`
    : html`<span class="who"><a href="/sign-in">Sign in</a></span>`;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · Pay</title>
<link rel="stylesheet" href="/assets/pay.css">
<link rel="icon" href="data:,">
</head>
<body>
<header><a class="name" href="/">Pay</a>${who}</header>
<main${narrow ? html` class="narrow"` : ''}>
<h1>${title}</h1>
${body}
</main>
</body>
</html>`;
}

export function csrfField({ csrf }: Visitor) {
  return html`<input type="hidden" name="csrf" value="${csrf}">`;
}
