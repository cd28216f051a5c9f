/** The edge's own answers: problem documents with their fields, or pages where a browser asks. */
import { prefersHtml } from '../../builtin-tenants/kit/prefers-html.ts';
import { fieldLine } from '../http/instance/request.ts';
import type { Exchange } from '../http/message/exchange.ts';
import { ALONE_HEADERS, problemPage } from '../pages/problem-page.ts';
import { nodeHttp } from '../shared/node-http.ts';
import type { Problem } from '../shared/problem.ts';

export interface ProblemAnswer {
  status: number;
  reason: string;
  /** Field block without framing. */
  fields: string;
  body: Buffer;
}

const ACCEPT = /^accept:[\t ]*([^\r\n]*)/im;
const DEFAULT_RETRY_AFTER = '1';

/** @param date as `Date` fields are written @param home origin of the host: as a page, not as a document */
export function problemAnswer(problem: Problem, requestId: string, date: string, home?: string): ProblemAnswer {
  const headers: Record<string, string> = {
    'content-type': 'application/problem+json',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
    date,
    'x-request-id': requestId,
    ...problem.headers,
    ...(home === undefined ? {} : ALONE_HEADERS),
  };
  if (problem.status === 503 && headers['retry-after'] === undefined) headers['retry-after'] = retryAfter(problem);
  const document = problem.toDocument(requestId);
  let fields = '';
  for (const [name, value] of Object.entries(headers)) fields += fieldLine(name, value);
  return {
    status: problem.status,
    reason: nodeHttp.STATUS_CODES[problem.status] ?? '',
    fields,
    body: Buffer.from(home === undefined ? JSON.stringify(document) : problemPage(document, home)),
  };
}

/** @param home origin of the host, for the page that browsers get */
export function answerProblem(
  exchange: Exchange,
  problem: Problem,
  requestId: string,
  date: string,
  home: string,
): void {
  const page = prefersHtml(ACCEPT.exec(exchange.head.fields)?.[1]) ? home : undefined;
  const { status, reason, fields, body } = problemAnswer(problem, requestId, date, page);
  if (exchange.head.method === 'HEAD') {
    exchange.answer(status, reason, fields, 'none', String(body.length));
  } else {
    exchange.answer(status, reason, fields, body.length);
    exchange.write(body);
  }
  exchange.finish('');
}

/** Extra members cross the channel between processes, headers do not. */
function retryAfter(problem: Problem): string {
  const seconds = problem.extensions.retryAfter;
  return typeof seconds === 'number' && seconds > 0 ? String(Math.ceil(seconds)) : DEFAULT_RETRY_AFTER;
}
