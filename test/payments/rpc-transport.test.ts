/** What a node answers means the same as by viem's own transport, on which the rails' judgement of errors is built. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type BaseError, createClient, http, type Transport } from 'viem';
import { afterEach, expect, test } from 'vitest';
import { rpcTransport } from '../../host/payments/network/rpc-transport.ts';

/** For what answers, however busy the machine is. */
const PATIENCE_MS = 60_000;
/** For what does not. */
const TIMEOUT_MS = 500;

type Node = (request: IncomingMessage, response: ServerResponse) => void;

let server: Server | undefined;

afterEach(async () => {
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve));
});

async function node(answer: Node): Promise<string> {
  server = createServer(answer);
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const ask = (transport: Transport) =>
  createClient({ transport }).request({ method: 'eth_call', params: [{ value: 5n }, 'latest'] } as never);

/** What came of a call: the answer, or the names, codes and states of the errors. */
async function outcome(transport: Transport): Promise<unknown> {
  try {
    return await ask(transport);
  } catch (error) {
    const chain: object[] = [];
    for (
      let at = error as BaseError & { code?: number; status?: number };
      at instanceof Error;
      at = at.cause as never
    ) {
      // Beyond, what the two HTTP clients call a broken connection.
      if (!('shortMessage' in at)) break;
      chain.push({ name: at.name, code: at.code, status: at.status });
    }
    return chain;
  }
}

const both = (url: string, timeout = PATIENCE_MS) =>
  Promise.all([outcome(http(url, { timeout, retryCount: 0 })), outcome(rpcTransport(url, { timeout, retryCount: 0 }))]);

const json =
  (status: number, document: unknown): Node =>
  (request, response) => {
    request.resume();
    response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '0' });
    response.end(typeof document === 'string' ? document : JSON.stringify(document));
  };
const failure = (code: number) => ({ jsonrpc: '2.0', id: 1, error: { code, message: 'no', data: '0x08c379a0' } });

test.each<readonly [string, Node]>([
  ['a result', json(200, { jsonrpc: '2.0', id: 1, result: '0x2a' })],
  ['null', json(200, { jsonrpc: '2.0', id: 1, result: null })],
  ['nothing', json(200, { jsonrpc: '2.0', id: 1 })],
  ...[3, 4, -32000, -32003, -32005, -32601, -32603].map((code) => [`error ${code}`, json(200, failure(code))] as const),
  ['an error of the chain with 400', json(400, failure(-32602))],
  ['an error of the chain with 503', json(503, failure(-32603))],
  ...[401, 404, 429, 500, 502].map((status) => [`status ${status}`, json(status, { message: 'no' })] as const),
  [
    'a page with 502',
    (_request, response) => void response.writeHead(502, { 'content-type': 'text/html' }).end('<html>'),
  ],
  ['text with 200', json(200, '<html>')],
  ['an empty answer', json(200, '')],
  ['a connection that ends', (request) => void request.socket.destroy()],
  [
    'a connection that ends within the answer',
    (_request, response) =>
      void response.writeHead(200, { 'content-length': 9 }).write('{', () => response.socket?.destroy()),
  ],
])('%s', async (_name, answer) => {
  const [theirs, ours] = await both(`http://${await node(answer)}`);
  expect(ours).toEqual(theirs);
});

test('silence', async () => {
  const [theirs, ours] = await both(`http://${await node(() => {})}`, TIMEOUT_MS);
  expect(ours).toEqual(theirs);
});

test('more than is read', async () => {
  const url = await node(json(200, `"${'x'.repeat(10_485_760)}"`));
  const [theirs, ours] = await both(`http://${url}`);
  expect(ours).toEqual(theirs);
});

test('a kept connection that the node has closed is no failure', async () => {
  const connections = new Set<unknown>();
  const url = await node((request, response) => {
    if (connections.has(request.socket)) return void request.socket.destroy();
    connections.add(request.socket);
    json(200, { jsonrpc: '2.0', id: 1, result: '0x1' })(request, response);
  });
  const transport = rpcTransport(`http://${url}`, { timeout: PATIENCE_MS, retryCount: 0 });
  expect([await outcome(transport), await outcome(transport)]).toEqual(['0x1', '0x1']);
  expect(connections.size).toBe(2);
});

test('silence within an answer ends in time, too, which viem waits for', async () => {
  const url = await node((_request, response) => void response.writeHead(200).write('{'));
  const transport = rpcTransport(`http://${url}`, { timeout: TIMEOUT_MS, retryCount: 0 });
  expect(await outcome(transport)).toMatchObject([{ name: expect.stringMatching(/^(Timeout|HttpRequest)Error$/) }]);
});

test('what is asked is the same: document, name and password', async () => {
  const asked: unknown[] = [];
  const url = await node((request, response) => {
    let text = '';
    request.on('data', (piece: Buffer) => {
      text += piece;
    });
    request.on('end', () => {
      const { id: _, ...document } = JSON.parse(text);
      const { authorization, 'content-type': type } = request.headers;
      asked.push([request.method, request.url, authorization, type, document]);
      response.end('{"jsonrpc":"2.0","id":1,"result":"0x1"}');
    });
  });
  await both(`http://me:p%40ss@${url}/v2/key?a=1`);
  expect(asked[0]).toEqual(asked[1]);
});

test('a node that answers in the second attempt is asked twice, over a connection that stays', async () => {
  let calls = 0;
  const connections = new Set<unknown>();
  const url = await node((request, response) => {
    connections.add(request.socket);
    calls += 1;
    json(calls === 1 ? 503 : 200, { jsonrpc: '2.0', id: 1, result: '0x1' })(request, response);
  });
  expect(await ask(rpcTransport(`http://${url}`, { timeout: PATIENCE_MS, retryCount: 3 }))).toBe('0x1');
  expect([calls, connections.size]).toEqual([2, 1]);
});
