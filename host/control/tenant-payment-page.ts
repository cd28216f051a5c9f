/**
 * A tenant's own page for its 402s. The tenant is asked for it as anybody would ask, without anything of the caller, so
 * that one answer does for all who come within a short time; where it gives none, the host's own page is shown.
 */

import { prefersHtml } from '../../builtin-tenants/kit/prefers-html.ts';
import { MARKER, ownPaymentPage } from '../pages/own-payment-page.ts';
import { findPaidRoute } from '../payments/paid-routes.ts';
import type { PaidRoute } from '../payments/types.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import { OWN_ANSWER } from '../shared/problem.ts';
import { asPage, type ProblemPages, urlOf } from './pages/problem.ts';
import type { Dressed, ForwardToTenant } from './tenant-requests.ts';
import { tollView } from './toll-view.ts';

const MAX_BYTES = 64 * 1024;
/** From the request to the last byte, a start of the instance among it. */
const TIMEOUT_MS = 3_000;
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
/** How long an answer does, and that there was none, ms. */
const KEEP_MS = 10_000;
const MAX_KEPT = 128;
/** Of one tenant at once; callers may name a host with any port. */
const MAX_ASKED = 4;

/** Where a page of the tenant is on an origin that nobody else has. */
export function hasOwnOrigin({ via }: EdgeContext): boolean {
  return via === 'subdomain' || via === 'domain';
}

interface Kept {
  until: number;
  page: Promise<string | undefined>;
}

/** @param told why a tenant's page is not shown */
export function tenantPaymentPages(
  problemPages: ProblemPages,
  forward: ForwardToTenant,
  told: (tenant: string, text: string) => void,
): Dressed {
  const kept = new Map<string, Kept>();
  const asking = new Map<string, number>();

  function pageOf(deployment: Deployment, context: EdgeContext, path: string): Promise<string | undefined> {
    const { tenant, version } = deployment;
    const key = JSON.stringify([tenant, version, context.preview, context.proto, context.host, path]);
    const known = kept.get(key);
    if (known && known.until > performance.now()) return known.page;
    const others = asking.get(tenant) ?? 0;
    if (others >= MAX_ASKED) return Promise.resolve(undefined);
    asking.set(tenant, others + 1);
    const page = fetched(deployment, context, path)
      .catch((error: Error) => {
        told(tenant, `the payment page ${path} is not shown: ${error.message}`);
        return undefined;
      })
      .finally(() => {
        const left = (asking.get(tenant) ?? 1) - 1;
        if (left > 0) asking.set(tenant, left);
        else asking.delete(tenant);
      });
    kept.delete(key);
    kept.set(key, { until: performance.now() + TIMEOUT_MS + KEEP_MS, page });
    void page.then(() => {
      const entry = kept.get(key);
      if (entry?.page === page) entry.until = performance.now() + KEEP_MS;
    });
    for (const oldest of kept.keys()) {
      if (kept.size <= MAX_KEPT) break;
      kept.delete(oldest);
    }
    return page;
  }

  /** @throws Error that says what is wrong with it */
  async function fetched({ slug, paidRoutes }: Deployment, context: EdgeContext, path: string): Promise<string> {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const origin = `${context.proto}://${context.host}`;
    const ask = (asked: string): Promise<Response> => {
      const request = new Request(`${origin}${asked}`, { headers: { accept: 'text/html' }, redirect: 'manual' });
      return forward(slug, request, { ...context, tenantPath: asked, clientIp: '127.0.0.1' }, {}, signal);
    };
    let answer = await ask(path);
    // Static files answer /pay.html with the address without its ending.
    if (REDIRECTS.has(answer.status)) {
      await answer.body?.cancel();
      const to = new URL(answer.headers.get('location') ?? '', `${origin}${path}`);
      const routes = paidRoutes as unknown as PaidRoute[];
      if (to.origin !== new URL(origin).origin || findPaidRoute(routes, 'GET', to.pathname))
        throw new Error('it leads elsewhere');
      answer = await ask(to.pathname);
    }
    const type = answer.headers.get('content-type') ?? '';
    const coding = answer.headers.get('content-encoding') ?? 'identity';
    if (answer.status !== 200 || !/^text\/html\s*(?:;|$)/i.test(type) || coding !== 'identity') {
      await answer.body?.cancel();
      throw new Error(`it was answered ${answer.status} ${type.slice(0, 80)}`);
    }
    const text = await readText(answer, signal);
    if (text.split(MARKER).length !== 2) throw new Error(`it does not have ${MARKER} once`);
    return text;
  }

  return async (request, context, deployment, answer) => {
    if (answer.status !== 402 || !answer.headers.has(OWN_ANSWER) || !hasOwnOrigin(context)) return answer;
    if (request.method === 'HEAD' || !prefersHtml(request.headers.get('accept'))) return answer;
    const path = context.tenantPath ?? '/';
    const route = findPaidRoute(tollView(deployment).paidRoutes, request.method, path);
    if (route?.page === undefined) return answer;
    const template = await pageOf(deployment, context, route.page);
    if (template === undefined) return answer;
    const parts = { headers: Object.fromEntries(answer.headers), body: await answer.text() };
    const asked = { method: request.method, url: urlOf(context, request.url) };
    const page = asPage(problemPages, asked, parts, (payment) =>
      ownPaymentPage(payment, template, path.split('?')[0] ?? '/'),
    );
    return new Response(page.body, { status: 402, headers: page.headers });
  };
}

/** @throws Error for more than a page */
async function readText(answer: Response, signal: AbortSignal): Promise<string> {
  const reader = answer.body?.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  const giveUp = () => void reader?.cancel().catch(() => {});
  signal.addEventListener('abort', giveUp, { once: true });
  try {
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
      signal.throwIfAborted();
      if (done || !value) return Buffer.concat(chunks).toString('utf8');
      size += value.length;
      if (size > MAX_BYTES) throw new Error(`it is longer than ${MAX_BYTES} bytes`);
      chunks.push(value);
    }
  } catch (error) {
    giveUp();
    throw error;
  } finally {
    signal.removeEventListener('abort', giveUp);
  }
}
