/** Connections of handlers to this host's own edge, where that expects a PROXY header from this machine. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { type AddressInfo, createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { EdgeAgent, SecureEdgeAgent } from '../../host/egress/edge-agent.ts';
import { readPreface } from '../../host/http/preface/preface.ts';
import { loadConfig } from '../../host/supervisor/configuration.ts';
import { egressInit } from '../../host/supervisor/process-settings.ts';

const PEM = execFileSync(
  'openssl',
  'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=own.test -addext subjectAltName=DNS:own.test -keyout - -out -'.split(
    ' ',
  ),
  { stdio: ['ignore', 'pipe', 'ignore'] },
).toString();

it.each([
  ['http', http, () => new EdgeAgent({ keepAlive: true })],
  ['https', https, () => new SecureEdgeAgent({ keepAlive: true, ca: PEM })],
] as const)('begin with one, and are used again: %s', async (scheme, client, createAgent) => {
  const answer = (_: IncomingMessage, reply: http.ServerResponse) => reply.end('from the edge');
  const behind = scheme === 'http' ? http.createServer(answer) : https.createServer({ key: PEM, cert: PEM }, answer);
  let connections = 0;
  const edge = createServer({ pauseOnConnect: true }, (socket) => {
    connections++;
    // As the edge reads it (host/edge/listeners.ts).
    readPreface(socket, { proxyHeader: true, clientHello: false }, () => behind.emit('connection', socket));
  }).listen(0, '127.0.0.1');
  await once(edge, 'listening');
  const { port } = edge.address() as AddressInfo;
  const agent = createAgent();
  try {
    for (let count = 0; count < 2; count++) {
      const request = client.get({ agent, host: '127.0.0.1', port, servername: 'own.test' });
      const [reply] = (await once(request, 'response')) as [IncomingMessage];
      expect(await text(reply)).toBe('from the edge');
    }
    expect(connections).toBe(1);
  } finally {
    agent.destroy();
    edge.close();
  }
});

it.each([
  [true, ['127.0.0.1/32'], true],
  [true, ['10.0.0.0/8'], false],
  [false, ['127.0.0.1/32'], false],
])('are announced where the edge expects it: PROXY protocol %s, trusted %j', (proxyProtocol, trusted, expected) => {
  const flags = ['--tls-proxy-protocol', String(proxyProtocol), '--trusted-proxies', JSON.stringify(trusted)];
  const config = loadConfig({ folder: '/', env: {}, flags });
  expect(egressInit(config, 'http://localhost:8402', 8402, undefined, 0, 'key').edgeProxyHeader).toBe(expected);
});
