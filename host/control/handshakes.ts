/** WebSocket handshakes on control's socket: those of paid routes, which the toll lets through or refuses. */
import { type IncomingMessage, STATUS_CODES } from 'node:http';
import { type Duplex, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Logger } from 'pino';
import type { SocketCaller } from '../payments/types.ts';
import { asProblem } from '../shared/problem.ts';
import { CONTEXT_HEADER, parseContext } from './edge-context.ts';

export interface Handshakes {
  /** Whether a request is taken for a handshake; others are answered as if they asked for no upgrade. */
  expects(request: IncomingMessage): boolean;
  take(request: IncomingMessage, socket: Duplex, received: Buffer): void;
}

/** Fields of the hop between the edge and control. */
const HOP = new Set(['connection', 'upgrade', 'keep-alive', 'transfer-encoding', 'content-length']);

/** @param answer what is told to the caller; undefined: a socket was opened, and has ended */
export function handshakes(
  answer: (
    request: Request,
    context: ReturnType<typeof parseContext>,
    slug: string,
    caller: SocketCaller,
  ) => Promise<Response | undefined>,
  log: Logger,
): Handshakes {
  async function serve(request: IncomingMessage, socket: Duplex, received: Buffer): Promise<void> {
    const context = parseContext(String(request.headers[CONTEXT_HEADER]));
    let response: Response | undefined;
    try {
      response = await answer(toRequest(request), context, context.slug ?? '', { socket, received });
    } catch (error) {
      const problem = asProblem(error);
      if (problem.isFault) log.error({ err: error, requestId: context.requestId }, 'unexpected error');
      response = problem.toResponse(context.requestId);
    }
    if (response) await write(response, socket);
  }

  return {
    expects: ({ headers }) => {
      const header = headers[CONTEXT_HEADER];
      return typeof header === 'string' && parseContext(header).slug !== undefined;
    },
    take(request, socket, received) {
      socket.on('error', () => socket.destroy());
      serve(request, socket, received).catch((error) => {
        log.debug({ err: error }, 'a caller left during its handshake');
        socket.destroy();
      });
    },
  };
}

function toRequest({ rawHeaders, headers, url }: IncomingMessage): Request {
  const fields: [string, string][] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const [name = '', value = ''] = rawHeaders.slice(i, i + 2);
    if (!HOP.has(name.toLowerCase())) fields.push([name, value]);
  }
  return new Request(`http://${headers.host || 'localhost'}${url}`, { headers: fields });
}

/** The answer to a handshake that opens no socket; the connection ends with it. */
async function write(response: Response, socket: Duplex): Promise<void> {
  const { status, headers, body } = response;
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\nconnection: close\r\n`;
  for (const [name, value] of headers) if (!HOP.has(name)) head += `${name}: ${value}\r\n`;
  socket.write(`${head}\r\n`, 'latin1');
  if (body) await pipeline(Readable.fromWeb(body as never), socket);
  else socket.end();
}
