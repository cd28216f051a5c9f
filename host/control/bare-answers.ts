/**
 * Answers unpaid calls of paid routes from memory, before a `Request` is made of them: they come in floods, and every
 * tenant's free routes share this machine with them.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { prefersHtml } from '../../builtin-tenants/kit/prefers-html.ts';
import type { ControlDeps } from './deps.ts';
import { CONTEXT_HEADER, parseContext } from './edge-context.ts';
import { asPage, type ProblemPages, urlOf } from './pages/problem.ts';
import { describedPath } from './pages/tenant-openapi.ts';
import { hasPaymentCookie } from './payment-cookie.ts';
import { hasOwnOrigin } from './tenant-payment-page.ts';
import { tollView } from './toll-view.ts';

/** @returns whether the request was answered; if not, it goes the usual way */
export type AnswerEarly = (request: IncomingMessage, response: ServerResponse) => boolean;

/** @param problemPages what browsers get @param observe told of every answer, for metrics */
export function bareAnswers(
  { deployments, payments, log }: Pick<ControlDeps, 'deployments' | 'payments' | 'log'>,
  problemPages: ProblemPages,
  observe: (request: { kind: string; status: number; seconds: number }) => void,
): AnswerEarly {
  return (request, response) => {
    const from = performance.now();
    const header = request.headers[CONTEXT_HEADER];
    if (typeof header !== 'string') return false;
    const context = parseContext(header);
    if (context.slug === undefined || describedPath(request, context) !== undefined) return false;
    if (hasPaymentCookie(request.headers.cookie)) return false;
    const deployment = deployments.remembered(context.slug);
    if (!deployment) return false;
    const call = { method: request.method ?? '', header: (name: string) => request.headers[name]?.toString() };
    const bare = payments.bare402(call, context, tollView(deployment));
    if (!bare) return false;
    const inPages = prefersHtml(request.headers.accept);
    // The tenant is asked for it.
    if (inPages && bare.page !== undefined && hasOwnOrigin(context)) return false;
    const page = (parts: { headers: Record<string, string>; body: string }) =>
      asPage(problemPages, { method: call.method, url: urlOf(context, `http://host${request.url}`) }, parts);
    const answer = (digest: string | undefined) => {
      try {
        // Pages are made of the 402, and a body's digest is in its challenges.
        const parts = bare.answer(digest, context.reissue === true && !inPages && digest === undefined);
        const { headers, body } = inPages ? page(parts) : parts;
        response.writeHead(402, { ...headers, 'content-length': Buffer.byteLength(body) });
        response.end(body);
        observe({ kind: 'tenant', status: 402, seconds: (performance.now() - from) / 1000 });
      } catch (error) {
        // Outside of the application nobody else catches it.
        log.error({ err: error, requestId: context.requestId }, 'unexpected error');
        response.destroy();
      }
    };
    if (!call.header('content-length')) {
      answer(undefined);
      return true;
    }
    // Only its digest is needed: nothing is held for a caller who sends slowly.
    const hash = createHash('sha256');
    let bytes = 0;
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      hash.update(chunk);
    });
    request.on('end', () => answer(bytes === 0 ? undefined : `sha-256=${hash.digest('base64')}`));
    // The caller left with its body half sent: nobody is there to answer.
    request.on('error', () => response.destroy());
    return true;
  };
}
