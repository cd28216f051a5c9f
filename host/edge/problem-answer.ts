/** The edge's own answers: problem documents with their fields. */
import { STATUS_CODES } from 'node:http';
import { fieldLine } from '../http/instance/request.ts';
import type { Exchange } from '../http/message/exchange.ts';
import type { Problem } from '../shared/problem.ts';

export interface ProblemAnswer {
  status: number;
  reason: string;
  /** Field block without framing. */
  fields: string;
  body: Buffer;
}

const DEFAULT_RETRY_AFTER = '1';

/** @param date as `Date` fields are written */
export function problemAnswer(problem: Problem, requestId: string, date: string): ProblemAnswer {
  const headers: Record<string, string> = {
    'content-type': 'application/problem+json',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
    date,
    'x-request-id': requestId,
    ...problem.headers,
  };
  if (problem.status === 503 && headers['retry-after'] === undefined) headers['retry-after'] = retryAfter(problem);
  let fields = '';
  for (const [name, value] of Object.entries(headers)) fields += fieldLine(name, value);
  return {
    status: problem.status,
    reason: STATUS_CODES[problem.status] ?? '',
    fields,
    body: Buffer.from(JSON.stringify(problem.toDocument(requestId))),
  };
}

export function answerProblem(exchange: Exchange, problem: Problem, requestId: string, date: string): void {
  const { status, reason, fields, body } = problemAnswer(problem, requestId, date);
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
