/** The look, as a tenant has it: the stylesheet is a file of its own, and the host says what else there is. */
/// <reference path="../text-modules.d.ts" />
import { compactCss, contentName, fileHeaders, type Place, type Style } from './layout.ts';
import css from './look.css';

const TEXT = compactCss(css);

/** Path of the stylesheet below the tenant's own. */
export const LOOK_PATH = `/assets/${contentName('look', TEXT, 'css')}`;

/** @param prefix path of the tenant on its origin; empty on a host name of its own */
export function lookFile(prefix: string): Style {
  return { href: `${prefix}${LOOK_PATH}` };
}

/** For a page that stands alone, with the headers of `aloneHeaders`. */
export function lookText(): Style {
  return { text: TEXT };
}

/** Headers of a page that stands alone on whatever origin: it shows its own style, and leads to places by links alone. */
export async function aloneHeaders(): Promise<Record<string, string>> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(TEXT));
  const hash = btoa(String.fromCharCode(...new Uint8Array(digest)));
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': `default-src 'none'; style-src 'sha256-${hash}'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'`,
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  };
}

/** What is at `LOOK_PATH`. */
export function lookResponse(): Response {
  return new Response(TEXT, { headers: fileHeaders('text/css') });
}

/** @param text JSON in the secret of the source `places`; tenants run without it, too */
export function readPlaces(text: string | undefined, home: Place): Place[] {
  return text === undefined ? [home] : (JSON.parse(text) as Place[]);
}

/** The edge says where a tenant is on its origin; only a plain path is believed. */
export function prefixOf(request: Request): string {
  const prefix = request.headers.get('x-forwarded-prefix') ?? '';
  return /^(?:\/[a-z0-9][a-z0-9-]*)+$/.test(prefix) ? prefix : '';
}
