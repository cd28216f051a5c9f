/**
 * Talks to the operator's API of a host on this machine, over the unix socket in its data folder: who may read the
 * folder is the operator.
 */
import { existsSync } from 'node:fs';
import http from 'node:http';
import type { ProblemDocument } from '../shared/problem.ts';
import type { Session } from './session.ts';
import { Failure } from './terminal/failure.ts';
import { operatorSocket } from './wallet/local-host.ts';

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
  const socketPath = session.dataFolders.map((folder) => operatorSocket(folder)).find((one) => existsSync(one));
  if (socketPath === undefined) {
    throw new Failure(
      'unreachable',
      `No host runs on ${session.dataFolders.join(' or ')}: name its folder with --data.`,
    );
  }
  const answer = await send(socketPath, method, path, body);
  if (answer.status < 400 || accepted.includes(answer.status)) return answer;
  const document = parse(answer.text) as Partial<ProblemDocument> | undefined;
  throw new Failure('refused', document?.detail ?? `The host answered ${answer.status}.`, document);
}

function send(socketPath: string, method: string, path: string, body: unknown): Promise<OperatorAnswer> {
  return new Promise((resolve, reject) => {
    const headers = body === undefined ? {} : { 'content-type': 'application/json' };
    const request = http.request({ socketPath, method, path, headers }, (response) => {
      const pieces: Buffer[] = [];
      response.on('data', (piece: Buffer) => pieces.push(piece));
      response.on('error', reject);
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, text: Buffer.concat(pieces).toString('utf8') }),
      );
    });
    request.on('error', () =>
      reject(new Failure('unreachable', 'The host does not answer on its operator socket. Does it run?')),
    );
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
