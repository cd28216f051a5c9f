/**
 * Answers that went well: headers that all of them carry, what they cost, and the short one for callers that asked to be
 * called back.
 */
import { deliver } from './callback.ts';
import type { Visit } from './context.ts';
import { formatUsd, type MicroUsd } from './money.ts';
import type { Callback } from './options/callback.ts';

/** @param charge undefined on routes with a fixed price */
export function answerHeaders(visit: Visit, charge: MicroUsd | undefined): Record<string, string> {
  return {
    'x-request-id': visit.requestId,
    'dg-request-id': visit.requestId,
    ...(charge === undefined ? {} : { 'x-charge': formatUsd(charge) }),
  };
}

/** Answers JSON, or stores it for the callback and answers `{request_id}`. The work is done either way, and charged once; it is delivered when it is charged. */
export async function answerJson(
  visit: Visit,
  body: object,
  callback: Callback | undefined,
  charge: MicroUsd | undefined,
): Promise<Response> {
  const headers = answerHeaders(visit, charge);
  if (callback === undefined) return Response.json(body, { headers });
  await deliver(visit, {
    callback,
    requestId: visit.requestId,
    contentType: 'application/json',
    body: new TextEncoder().encode(JSON.stringify(body)),
  });
  return Response.json({ request_id: visit.requestId }, { headers });
}
