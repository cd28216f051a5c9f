/** Calls to our own worker in an instance's process; see system-worker.ts for the other side. */
import { request } from 'node:http';
import type { QueueAnswer, QueueCall } from '../bindings/queues/call.ts';
import { PING_PATH, QUEUE_PATH, SCHEDULED_PATH, SCRIPT_HEADER, TAIL_PATH } from './system-worker.ts';

/** What a handler that was called has come to. */
export type ScheduledAnswer = { outcome: 'ok' } | { outcome: 'exception'; error: string };

/** Longest run of a `scheduled()` handler, ms: Cloudflare's limit for crons. */
const SCHEDULED_TIMEOUT_MS = 15 * 60_000;
/** Longest run of a `tail()` handler, ms. */
const TAIL_TIMEOUT_MS = 30_000;
/** Longest wait until messages are kept, ms. */
const QUEUE_TIMEOUT_MS = 30_000;
const MAX_ANSWER_BYTES = 16 * 1_024;

/** Whether the answer came in time. Never rejects. */
export function ping(socketPath: string, timeoutMs: number): Promise<boolean> {
  return call(socketPath, 'GET', PING_PATH, undefined, AbortSignal.timeout(timeoutMs)).then(
    (text) => text === 'pong',
    () => false,
  );
}

/** @throws Error when the process ends, or the handler takes too long */
export async function askScheduled(socketPath: string, cron: string, scheduledTime: number): Promise<ScheduledAnswer> {
  const text = await call(
    socketPath,
    'POST',
    SCHEDULED_PATH,
    JSON.stringify({ cron, scheduledTime }),
    AbortSignal.timeout(SCHEDULED_TIMEOUT_MS),
  );
  return outcomeOf(text);
}

/** @param from slug @param events a JSON array @throws Error when the process ends, or the handler takes too long */
export async function askTail(socketPath: string, from: string, events: Buffer): Promise<ScheduledAnswer> {
  const { text } = await ask(socketPath, 'POST', TAIL_PATH, events, AbortSignal.timeout(TAIL_TIMEOUT_MS), {
    [SCRIPT_HEADER]: from,
  });
  return outcomeOf(text);
}

function outcomeOf(text: string): ScheduledAnswer {
  const answer = JSON.parse(text) as { outcome?: unknown; error?: unknown };
  return answer.outcome === 'ok' ? { outcome: 'ok' } : { outcome: 'exception', error: String(answer.error) };
}

/** @param binding of the queue @throws Error when there is no answer in time */
export async function callQueue(
  socketPath: string,
  binding: string,
  { method, operation, headers, body }: QueueCall,
): Promise<QueueAnswer> {
  return await ask(
    socketPath,
    method,
    `${QUEUE_PATH}${binding}${operation}`,
    body,
    AbortSignal.timeout(QUEUE_TIMEOUT_MS),
    headers,
  );
}

/** The body of `GET /` on a socket. @throws Error when it is aborted before there is an answer */
export function getText(socketPath: string, signal: AbortSignal): Promise<string> {
  return call(socketPath, 'GET', '/', undefined, signal);
}

async function call(...asked: Parameters<typeof ask>): Promise<string> {
  return (await ask(...asked)).text;
}

function ask(
  socketPath: string,
  method: string,
  path: string,
  body: string | Buffer | undefined,
  signal: AbortSignal,
  headers: Record<string, string> = {},
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath, method, path, headers, signal, agent: false }, (incoming) => {
      let text = '';
      incoming.setEncoding('utf8');
      incoming.on('data', (chunk: string) => {
        if (text.length < MAX_ANSWER_BYTES) text += chunk;
      });
      incoming.on('end', () => resolve({ status: incoming.statusCode ?? 0, text }));
      incoming.on('error', reject);
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}
