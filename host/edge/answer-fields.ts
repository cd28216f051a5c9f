/**
 * What of an answer's fields reaches the caller. Tenants on path addresses share an origin: cookies are confined to
 * the tenant's path there, and fields that speak for the whole origin are dropped.
 *
 * Pages there are sandboxed (CSP): each has an origin of its own, so that its scripts reach neither other tenants' pages
 * nor their cookies and storage. A page that needs an origin that lasts has one at its subdomain or its own domain. The
 * host does not redirect browsers there: whether that name resolves and has a certificate is known to the operator alone.
 */
import type { ResponseHead } from '../http/message/head.ts';
import { type Shown, tenantChallenges } from './own-challenges.ts';

export interface AnswerPlace extends Shown {
  /** `control`: the host's own answers, which may speak for the origin. */
  via: 'path' | 'subdomain' | 'domain' | 'control';
  /** `/<slug>` on path addresses. */
  prefix: string;
  /** Host name the caller used, without port. */
  hostName: string;
  /** Its pages may act for the origin. */
  trusted: boolean;
  /** Control made the answer. */
  own?: boolean;
  /** Of a version that is not live. */
  preview?: string | undefined;
}

/** Everything but `allow-same-origin`, and what a page does to its window without being asked. */
const SANDBOX =
  'content-security-policy: sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups ' +
  'allow-popups-to-escape-sandbox allow-presentation allow-scripts\r\n';

/** Of a place on the same host: `/path`, or `http://<authority>/path`. `//name/path` is a place elsewhere. */
const LOCATION = /^(location:[\t ]*)(?!\/\/)(?:https?:\/\/([^/?#\s]*))?((?:[/?#][^\r\n]*)?)$/im;

/**
 * @param date for answers that carry none, as `Date` fields are written
 * @returns field block without framing
 */
export function answerFields(head: ResponseHead, place: AnswerPlace, requestId: string, date: string): string {
  let fields = head.fields;
  if (place.via === 'path' && head.status >= 300 && head.status < 400)
    fields = fields.replace(LOCATION, redirect(place));
  if (head.challenges !== '') fields += place.own ? head.challenges : tenantChallenges(head.challenges, place);
  if (place.via !== 'path') fields += head.originFields;
  // On every answer: which of them a browser shows as a page is for the browser to say. Policies add up.
  else if (!place.trusted) fields += SANDBOX;
  if (place.preview !== undefined) fields += 'x-robots-tag: noindex\r\n';
  for (const cookie of head.cookies) fields += `set-cookie: ${confinedCookie(cookie, place)}\r\n`;
  return `${fields}date: ${head.date || date}\r\nx-request-id: ${requestId}\r\n`;
}

/** A handler does not know what stands before its paths: a redirect within it stays within it. */
function redirect({ prefix, host }: AnswerPlace) {
  return (line: string, start: string, authority: string | undefined, path: string) => {
    if (authority !== undefined && authority.toLowerCase() !== host.toLowerCase()) return line;
    const rest = path === '' ? '/' : path;
    if (!rest.startsWith('/') || rest === prefix || rest.startsWith(`${prefix}/`)) return line;
    return `${start}${prefix}${rest}`;
  };
}

/**
 * @param cookie value of a Set-Cookie field
 * @returns the value as this tenant may set it
 */
export function confinedCookie(cookie: string, place: AnswerPlace): string {
  if (place.via === 'domain' || place.via === 'control') return cookie;
  const [pair = '', ...attributes] = cookie.split(';');
  const kept = attributes.filter((attribute) => {
    const name = attributeName(attribute);
    if (name === 'path') return place.via !== 'path';
    return name !== 'domain' || (place.via === 'subdomain' && withinHost(attribute, place.hostName));
  });
  // RFC 6265 takes the last Path; the one path that other tenants never match is the tenant's own.
  if (place.via === 'path') kept.push(` Path=${place.prefix}`);
  return [pair, ...kept].join(';');
}

function attributeName(attribute: string): string {
  const equals = attribute.indexOf('=');
  return (equals < 0 ? attribute : attribute.slice(0, equals)).trim().toLowerCase();
}

/** A Domain attribute may name the tenant's own host, never the domain above it that all tenants are under. */
function withinHost(attribute: string, hostName: string): boolean {
  const value = attribute
    .slice(attribute.indexOf('=') + 1)
    .trim()
    .toLowerCase()
    .replace(/^\./, '');
  return value === hostName;
}
