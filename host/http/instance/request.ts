/**
 * The head of a request to an instance, and of one to control. Used by the edge, and by control's toll when it
 * forwards a paid call, so that a handler sees the same fields either way.
 */
import type { EdgeContext } from '../../shared/contracts.ts';
import { FIELD_NAME, FIELD_VALUE, Field, requestField } from '../message/fields.ts';
import type { Framing } from '../message/framing.ts';

/** workerd fills `request.cf` from it (`cfBlobHeader`). */
export const CF_HEADER = 'x-turnpike-cf';
/** Control reads the edge's context from it. */
export const CONTEXT_HEADER = 'x-turnpike-context';

/** What the handler may know of the connection; the members are those of Cloudflare's `request.cf`. */
export interface ConnectionFacts {
  version: '1.0' | '1.1' | '2';
  tlsVersion: string;
  tlsCipher: string;
}

const remembered = new Map<string, string>();

/** The line with the `request.cf` blob. */
function cfLine(facts: ConnectionFacts): string {
  const key = `${facts.version} ${facts.tlsVersion} ${facts.tlsCipher}`;
  let line = remembered.get(key);
  if (line === undefined) {
    const blob = {
      httpProtocol: facts.version === '2' ? 'HTTP/2' : `HTTP/${facts.version}`,
      tlsVersion: facts.tlsVersion,
      tlsCipher: facts.tlsCipher,
    };
    line = `${CF_HEADER}: ${JSON.stringify(blob)}\r\n`;
    // Versions and ciphers come from our own TLS stack: a handful.
    remembered.set(key, line);
  }
  return line;
}

export interface InstanceRequest {
  method: string;
  /** Raw path and query as the handler sees it. */
  path: string;
  /** Host as the caller addressed it. */
  host: string;
  framing: Framing;
  /** A WebSocket handshake. */
  upgrade: boolean;
  /** Block of checked fields that go on to the handler: `RequestHead.fields`, or `instanceFields(rawHeaders)`. */
  fields: string;
}

/**
 * The request line names the whole URL, as workerd's sockets of style `proxy` want it: so the handler's `request.url` has
 * the caller's scheme, and `x-forwarded-proto` is left for the handler to read.
 * @returns the whole head, with framing and empty line, in latin1
 */
export function instanceHead(
  request: InstanceRequest,
  context: Pick<EdgeContext, 'requestId' | 'clientIp' | 'proto' | 'prefix'>,
  facts: ConnectionFacts,
  extraFields = '',
): string {
  const host = request.host || 'localhost';
  return (
    `${request.method} ${context.proto}://${host}${request.path} HTTP/1.1\r\nhost: ${host}\r\n` +
    request.fields +
    hopFields(request.framing, request.upgrade) +
    `cf-connecting-ip: ${context.clientIp}\r\nx-forwarded-for: ${context.clientIp}\r\n` +
    `x-forwarded-proto: ${context.proto}\r\nx-forwarded-host: ${request.host}\r\n` +
    (context.prefix ? `x-forwarded-prefix: ${context.prefix}\r\n` : '') +
    `x-request-id: ${context.requestId}\r\n${cfLine(facts)}${extraFields}\r\n`
  );
}

/** The head of a request that goes to control, with the caller's own path. */
export function controlHead(request: InstanceRequest & { expectContinue: boolean }, context: EdgeContext): string {
  return (
    `${request.method} ${request.path} HTTP/1.1\r\nhost: ${request.host || 'localhost'}\r\n` +
    request.fields +
    hopFields(request.framing, request.upgrade) +
    (request.expectContinue ? 'expect: 100-continue\r\n' : '') +
    `x-forwarded-for: ${context.clientIp}\r\nx-forwarded-proto: ${context.proto}\r\n` +
    `x-forwarded-host: ${request.host}\r\nx-request-id: ${context.requestId}\r\n` +
    `${CONTEXT_HEADER}: ${Buffer.from(JSON.stringify(context)).toString('base64url')}\r\n\r\n`
  );
}

/**
 * Fields of a request that control received, as a block for `instanceHead`: without those of the hop and those that
 * only the host may set.
 * @param rawHeaders name and value in turn, as Node's `rawHeaders`
 * @throws TypeError where a name or value could not be one line of a head
 */
export function instanceFields(rawHeaders: readonly string[]): string {
  let block = '';
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    const value = rawHeaders[i + 1] as string;
    if (requestField(name) !== Field.keep) continue;
    block += fieldLine(name, value);
  }
  return block;
}

/** @throws TypeError where it could not be one line of a head */
export function fieldLine(name: string, value: string): string {
  if (!FIELD_NAME.test(name) || !FIELD_VALUE.test(value)) throw new TypeError(`the header ${name} cannot be sent`);
  return `${name}: ${value}\r\n`;
}

function hopFields(framing: Framing, upgrade: boolean): string {
  const body =
    framing.kind === 'length'
      ? `content-length: ${framing.length}\r\n`
      : framing.kind === 'chunked'
        ? 'transfer-encoding: chunked\r\n'
        : '';
  return upgrade ? `${body}connection: Upgrade\r\nupgrade: websocket\r\n` : body;
}
