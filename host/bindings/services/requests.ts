/** Sends one request of a caller on to the callee's instance, streaming both ways; or joins both sides of a WebSocket. */
import http from 'node:http';
import type { Duplex } from 'node:stream';
import { Problem } from '../../shared/problem.ts';

export interface Destination {
  /** Path. */
  socket: string;
  /** Both deployments have one owner: what the caller says of its own caller is passed on. */
  related: boolean;
}

/** Of the connection, not of the message (RFC 9110, section 7.6.1). */
const HOP = /^(?:connection|keep-alive|proxy-.*|upgrade|te|trailer|expect)$/i;
/** What the host says to handlers of their callers and payments; another owner's code must not say it. */
const HOSTS_WORD =
  /^(?:x-turnpike-.*|cf-.*|x-forwarded-.*|forwarded.*|x-real-ip|true-client-ip|x-client-ip|x-cluster-client-ip|x-payer|x-payment-.*|x-charge|x-request-id)$/i;
/** Never anybody's: workerd would take it for the edge's. */
const NEVER = /^x-turnpike-.*$/i;

/** Resolves when the answer is complete. @throws Problem where there is none */
export function forward(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { socket, related }: Destination,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // Where the callee may close first, Node (24.21) fails at the end of a body that was answered already.
  const sent = start(request, socket, [...passed(request.rawHeaders, related), 'connection', 'keep-alive']);
  const failed = () =>
    reject(new Problem('upstream_failed', 'The service ended the connection before its answer was complete.'));
  sent.on('error', failed);
  // Nobody asked for it.
  sent.on('upgrade', (_answer, callee) => {
    callee.destroy();
    failed();
  });
  sent.on('response', (answer) => {
    answer.on('error', failed).on('aborted', failed);
    response.writeHead(answer.statusCode ?? 502, answer.statusMessage, answerFields(answer.rawHeaders));
    answer.pipe(response);
  });
  response.on('close', () => {
    sent.destroy();
    resolve();
  });
  request.pipe(sent);
  return promise;
}

/** Resolves when both sides are closed, or the callee has answered something else. @throws Problem */
export function upgrade(
  request: http.IncomingMessage,
  caller: Duplex,
  received: Buffer,
  { socket, related }: Destination,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const fields = [...passed(request.rawHeaders, related), 'connection', 'Upgrade', 'upgrade', 'websocket'];
  const sent = start(request, socket, fields);
  sent.on('error', () => reject(new Problem('upstream_failed', 'The service did not answer the handshake.')));
  sent.on('response', (answer) => {
    caller.write(headText(answer, ['connection', 'close']), 'latin1');
    answer.pipe(caller);
  });
  sent.on('upgrade', (answer, callee, rest) => {
    caller.write(headText(answer, ['connection', 'Upgrade', 'upgrade', 'websocket']), 'latin1');
    if (rest.length > 0) caller.write(rest);
    if (received.length > 0) callee.write(received);
    callee.pipe(caller);
    caller.pipe(callee);
    const end = () => {
      callee.destroy();
      caller.destroy();
    };
    callee.on('error', end).on('close', end);
  });
  caller.on('close', () => {
    sent.destroy();
    resolve();
  });
  sent.end();
  return promise;
}

function start({ method = 'GET', url = '/' }: http.IncomingMessage, socketPath: string, headers: string[]) {
  // The path is the whole URL, as sockets of workerd's style `proxy` want it.
  return http.request({ socketPath, method, path: url, headers, agent: false, setHost: false });
}

function passed(raw: readonly string[], related: boolean): string[] {
  return pairs(raw, (name) => !HOP.test(name) && !(related ? NEVER : HOSTS_WORD).test(name));
}

function answerFields(raw: readonly string[]): string[] {
  return pairs(raw, (name) => !HOP.test(name) && !/^transfer-encoding$/i.test(name));
}

function headText(answer: http.IncomingMessage, own: string[]): string {
  const fields = [...answerFields(answer.rawHeaders), ...own];
  let text = `HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\n`;
  for (let at = 0; at < fields.length; at += 2) text += `${fields[at]}: ${fields[at + 1]}\r\n`;
  return `${text}\r\n`;
}

function pairs(raw: readonly string[], keep: (name: string) => boolean): string[] {
  const kept: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [name = '', value = ''] = [raw[at], raw[at + 1]];
    if (keep(name)) kept.push(name, value);
  }
  return kept;
}
