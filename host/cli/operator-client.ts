/**
 * Talks to the operator's API of a host on this machine, over the unix socket in its data folder: who may read the
 * folder is the operator.
 */
import { existsSync } from 'node:fs';
import http from 'node:http';
import type { ProblemDocument } from '../shared/problem.ts';
import { eventsOf, type ServerEvent } from './events.ts';
import type { Session } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { hostFolder, operatorSocket } from './wallet/local-host.ts';

export interface OperatorAnswer {
  status: number;
  text: string;
}

/**
 * @throws Failure `unreachable` when no host runs on the data folder, `refused` with the host's words
 * @param accepted statuses that are answers, besides those below 400
 */
export async function callOperator(
  session: Session,
  method: string,
  path: string,
  body?: unknown,
  accepted: number[] = [],
): Promise<OperatorAnswer> {
  const headers = body === undefined ? {} : { 'content-type': 'application/json' };
  const answer = await textOf(await send(session, { method, path, headers }, body));
  if (answer.status < 400 || accepted.includes(answer.status)) return answer;
  throw refusal(answer);
}

/** Lines of a log as they come, until the host ends the stream. @throws Failure as `callOperator` */
export async function* operatorEvents(session: Session, path: string, lastId: string): AsyncGenerator<ServerEvent> {
  const headers = { accept: 'text/event-stream', ...(lastId === '' ? {} : { 'last-event-id': lastId }) };
  const { signal } = session.terminal;
  const response = await send(session, { method: 'GET', path, headers, signal });
  if (response.statusCode !== 200) throw refusal(await textOf(response));
  yield* eventsOf(response);
}

function send(session: Session, options: http.RequestOptions, body?: unknown): Promise<http.IncomingMessage> {
  const folder = hostFolder(session.dataFolders);
  const socketPath = operatorSocket(folder ?? '');
  if (folder === undefined || !existsSync(socketPath)) {
    throw new Failure(
      'unreachable',
      `No host runs on ${folder ?? session.dataFolders.join(' or ')}: name its folder with --data.`,
    );
  }
  return new Promise((resolve, reject) => {
    const request = http.request({ ...options, socketPath }, resolve);
    request.on('error', () =>
      reject(new Failure('unreachable', 'The host does not answer on its operator socket. Does it run?')),
    );
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

async function textOf(response: http.IncomingMessage): Promise<OperatorAnswer> {
  const pieces: Buffer[] = [];
  for await (const piece of response as AsyncIterable<Buffer>) pieces.push(piece);
  return { status: response.statusCode ?? 0, text: Buffer.concat(pieces).toString('utf8') };
}

function refusal({ status, text }: OperatorAnswer): Failure {
  const document = parse(text) as Partial<ProblemDocument> | undefined;
  return new Failure('refused', document?.detail ?? `The host answered ${status}.`, document);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
