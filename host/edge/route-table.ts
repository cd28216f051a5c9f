/**
 * The route table: which slug, or control, a request belongs to. Decides on the raw path, never on a normalised one,
 * so that no spelling of a path can reach another slug or the admin API than the one it plainly names.
 */

import { consoleName } from '../shared/console-place.ts';
import type { EdgeContext, Route } from '../shared/contracts.ts';
import { previewOf } from '../shared/previews.ts';
import { SLUG } from '../shared/slug.ts';

export type Resolution =
  | {
      kind: 'tenant';
      route: Route;
      /** `/<slug>` on the shared origin, else empty. */
      prefix: string;
      /** Raw path and query as the tenant sees them. */
      tenantPath: string;
      via: NonNullable<EdgeContext['via']>;
      /** Host name of the request, without port. */
      hostName: string;
      /** With it, as the caller wrote it. */
      host: string;
      /** Its pages may act for the origin they are on. */
      trusted: boolean;
      /** Id of the version that is asked; undefined: the one that is live. */
      preview: string | undefined;
    }
  /** `/<slug>`: what it answered would lie beside the paths of other tenants, not below its own. */
  | { kind: 'slash'; target: string; tenant: Extract<Resolution, { kind: 'tenant' }> }
  /** The host's own pages and endpoints. */
  | { kind: 'control' }
  | { kind: 'unknown'; detail: string };

/** First segments that control answers although they look like slugs, beside the reserved names given at start. */
const OWN_SEGMENTS = ['docs', 'healthz', 'mcp'];
/** An authority looks for HTTP-01 tokens here (RFC 8555, section 8.3); control has them. */
export const CHALLENGE_PREFIX = '/.well-known/acme-challenge/';

export interface Names {
  /** Public origin of the host, such as `https://api.example.com`. */
  publicUrl: string | undefined;
  baseDomain: string;
  /** Slugs that no tenant may take: unless one is deployed there, control answers. */
  reservedSlugs: readonly string[];
}

export class RouteTable {
  readonly #slugs = new Map<string, Route>();
  readonly #domains = new Map<string, Route>();
  readonly #own: Set<string>;
  readonly #publicHost: string | undefined;
  readonly #baseSuffix: string;
  readonly #baseDomain: string;
  readonly #consoleName: string | undefined;
  #lastHost = '';
  #lastName = '';

  constructor(names: Names) {
    this.#own = new Set([...OWN_SEGMENTS, ...names.reservedSlugs]);
    this.#publicHost = names.publicUrl ? new URL(names.publicUrl).hostname.toLowerCase() : undefined;
    this.#baseDomain = names.baseDomain.toLowerCase();
    this.#baseSuffix = `.${this.#baseDomain}`;
    this.#consoleName = consoleName(this.#baseDomain);
  }

  get size(): number {
    return this.#slugs.size;
  }

  bySlug(slug: string): Route | undefined {
    return this.#slugs.get(slug);
  }

  put(route: Route): void {
    this.remove(route.slug);
    this.#slugs.set(route.slug, route);
    for (const domain of route.domains) this.#domains.set(domain, route);
  }

  remove(slug: string): void {
    const route = this.#slugs.get(slug);
    if (!route) return;
    this.#slugs.delete(slug);
    for (const domain of route.domains) {
      // The domain may belong to another slug by now.
      if (this.#domains.get(domain)?.slug === slug) this.#domains.delete(domain);
    }
  }

  /** Makes this the whole table. */
  replace(routes: readonly Route[]): void {
    this.#slugs.clear();
    this.#domains.clear();
    for (const route of routes) this.put(route);
  }

  /**
   * @param host Host field, with or without port
   * @param target raw request target in origin form
   */
  resolve(host: string, target: string): Resolution {
    const name = host === this.#lastHost ? this.#lastName : this.#remember(host);
    if (this.#domains.size > 0) {
      const route = this.#domains.get(name);
      if (route) return this.#whole(route, target, 'domain', name, host);
    }
    if (name.endsWith(this.#baseSuffix) && name !== this.#publicHost) {
      // Before the slugs: one of an earlier host may have this name, and answers at its path alone.
      if (name === this.#consoleName) return { kind: 'control' };
      const label = name.slice(0, -this.#baseSuffix.length);
      const route = this.#slugs.get(label);
      if (route) return this.#whole(route, target, 'subdomain', name, host);
      const preview = this.#preview(label);
      if (preview) return this.#whole(preview.route, target, 'subdomain', name, host, preview.id);
      if (!this.#isShared(name))
        return {
          kind: 'unknown',
          detail: `Nothing is deployed at ${name}; see /llms.txt of the host for what is offered.`,
        };
    }
    if (!this.#isShared(name)) {
      if (target.startsWith(CHALLENGE_PREFIX) || target === '/healthz') return { kind: 'control' };
      return { kind: 'unknown', detail: `No tenant of this host answers at ${name}.` };
    }
    return this.#byPath(target, name, host);
  }

  /** Most requests in a row name the same host. */
  #remember(host: string): string {
    this.#lastHost = host;
    this.#lastName = hostName(host);
    return this.#lastName;
  }

  #byPath(target: string, name: string, host: string): Resolution {
    let end = 1;
    for (; end < target.length; end += 1) {
      const code = target.charCodeAt(end);
      if (code === 0x2f || code === 0x3f) break;
    }
    const segment = target.slice(1, end);
    const preview = this.#slugs.has(segment) ? undefined : this.#preview(segment);
    const route = preview?.route ?? this.#slugs.get(segment);
    if (route) {
      const rest = target.slice(end);
      const below = rest.charCodeAt(0) === 0x2f;
      const trusted = route.trustedPages === true;
      const tenant: Extract<Resolution, { kind: 'tenant' }> = {
        kind: 'tenant',
        route,
        prefix: `/${segment}`,
        tenantPath: below ? rest : `/${rest}`,
        via: 'path',
        hostName: name,
        host,
        trusted,
        preview: preview?.id,
      };
      return below ? tenant : { kind: 'slash', target: `/${segment}/${rest}`, tenant };
    }
    if (!isCanonical(target)) {
      return { kind: 'unknown', detail: 'Paths of this host are taken in their plain spelling alone; see /llms.txt.' };
    }
    if (!SLUG.test(segment) || this.#own.has(segment)) return { kind: 'control' };
    return { kind: 'unknown', detail: `Nothing is deployed at /${segment}; see /llms.txt for what this host offers.` };
  }

  #whole(
    route: Route,
    target: string,
    via: 'subdomain' | 'domain',
    name: string,
    host: string,
    preview?: string,
  ): Resolution {
    if (target.startsWith(CHALLENGE_PREFIX)) return { kind: 'control' };
    return { kind: 'tenant', route, prefix: '', tenantPath: target, via, hostName: name, host, trusted: true, preview };
  }

  /** What `<id>--<slug>` leads to. A slug of that form, from an earlier host, comes before it. */
  #preview(label: string): { route: Route; id: string } | undefined {
    const { slug, id } = previewOf(label) ?? {};
    const route = slug === undefined ? undefined : this.#slugs.get(slug);
    if (id === undefined || route?.state !== 'active' || !route.previews?.includes(id)) return undefined;
    return { route, id };
  }

  /** Whether a host name is the origin that tenants share: with no public URL set, every name that is not a tenant's. */
  #isShared(name: string): boolean {
    if (this.#publicHost === undefined) return !name.endsWith(this.#baseSuffix);
    return name === this.#publicHost || name === this.#baseDomain || !name.includes('.') || isAddress(name);
  }
}

/**
 * Escapes beyond ASCII alone: others are a second spelling of a path, which rules of a proxy in front would not see. But
 * for `{name}`, which has no other spelling: indexers send the placeholders of a description as they are.
 */
const CANONICAL = /^(?:\/(?:%7B\w{1,32}%7D(?![^/?])|(?:[\w~:@.-]|%[89A-Fa-f][0-9A-Fa-f])*))+(?:\?|$)/;

/** Whether a target has one spelling: no dot segments, no empty ones, nothing escaped that need not be. */
function isCanonical(target: string): boolean {
  const query = target.indexOf('?');
  const path = query < 0 ? target : target.slice(0, query);
  return CANONICAL.test(path) && !path.includes('//') && !/\/\.{1,2}(?:\/|$)/.test(path);
}

/** Lower case, without port and root dot. */
export function hostName(host: string): string {
  let end = host.length;
  if (host.charCodeAt(0) === 0x5b) end = host.indexOf(']') + 1;
  else {
    const colon = host.indexOf(':');
    if (colon >= 0) end = colon;
  }
  if (end > 1 && host.charCodeAt(end - 1) === 0x2e) end -= 1;
  return host.slice(0, end).toLowerCase();
}

function isAddress(name: string): boolean {
  return name.startsWith('[') || /^[0-9]{1,3}(?:\.[0-9]{1,3}){3}$/.test(name);
}
