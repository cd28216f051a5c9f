/** Answers of the host that are problems, as pages, where a browser asked; everybody else gets the document. */

import { prefersHtml } from '../../../builtin-tenants/kit/prefers-html.ts';
import { type PaymentPageParts, paymentPage, type WalletChain } from '../../pages/payment-page.ts';
import { ALONE_HEADERS, problemPage } from '../../pages/problem-page.ts';
import type { EdgeContext } from '../../shared/contracts.ts';
import { OWN_ANSWER, type ProblemDocument } from '../../shared/problem.ts';
import type { ClientNetwork } from './stock-clients.ts';

export interface ProblemPages {
  /** Origin of the host. */
  home: string;
  network: ClientNetwork;
}

interface Asked {
  method: string;
  /** As the caller sees it. */
  url: string;
  /** Default: yes. */
  programs?: boolean;
}

type Parts = { headers: Record<string, string>; body: string };

/** The same answer as a page. @param parts with a problem document as the body @param design of a 402 */
export function asPage(
  { home, network }: ProblemPages,
  { method, url, programs = true }: Asked,
  parts: Parts,
  design: (parts: PaymentPageParts) => Parts = paymentPage,
): Parts {
  const document = JSON.parse(parts.body) as ProblemDocument;
  const { 'content-type': _type, ...kept } = parts.headers;
  if (document.status !== 402) return { headers: { ...kept, ...ALONE_HEADERS }, body: problemPage(document, home) };
  const { headers, body } = design({
    document,
    required: kept['payment-required'],
    network: network.name,
    chain: chainOf(network),
    method,
    url,
    home,
    programs,
    now: Date.now(),
  });
  return { headers: { ...kept, ...headers }, body };
}

/** An answer of the host as it is for this caller. */
export async function forCaller(pages: ProblemPages, request: Request, context: EdgeContext, response: Response) {
  const isProblem = response.headers.get('content-type') === 'application/problem+json';
  if (!isProblem || !response.headers.has(OWN_ANSWER) || !prefersHtml(request.headers.get('accept'))) return response;
  const asked = { method: request.method, url: urlOf(context, request.url) };
  const { headers, body } = asPage(pages, asked, {
    headers: Object.fromEntries(response.headers),
    body: await response.text(),
  });
  return new Response(request.method === 'HEAD' ? null : body, { status: response.status, headers });
}

/** As the caller sees it; payments are bound to it. @param asked URL of the request; its path is the host's own */
export function urlOf({ proto, host, slug, prefix = '', tenantPath = '/' }: EdgeContext, asked: string): string {
  if (slug !== undefined) return `${proto}://${host}${prefix}${tenantPath}`;
  const { pathname, search } = new URL(asked);
  return `${proto}://${host}${pathname}${search}`;
}

function chainOf({ x402 }: ClientNetwork): WalletChain | undefined {
  return x402?.walletChain && { network: x402.network, ...x402.walletChain };
}
