/** What the answers at the engine's name mean to a caller. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EmbeddedEngine } from '../../../builtin-tenants/speech/src/engines/embedded.ts';
import { Problem } from '../../../host/shared/problem.ts';

let server: Server;
let problem: Problem;

beforeEach(async () => {
  server = createServer((_request, reply) => {
    reply.writeHead(problem.status, { 'content-type': 'application/problem+json' });
    reply.end(JSON.stringify(problem.toDocument()));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterEach(() => server.close());

it.each([
  ['egress_limit', { code: 'TOO_MANY_REQUESTS', retryAfter: 5 }],
  ['egress_failed', { code: 'SERVICE_UNAVAILABLE', message: /does not answer/ }],
] as const)('%s of the host', async (code, expected) => {
  problem = new Problem(code, 'as the host puts it');
  const { port } = server.address() as AddressInfo;
  const failure = new EmbeddedEngine(`http://127.0.0.1:${port}`).health();
  await expect(failure).rejects.toMatchObject(
    'message' in expected ? { ...expected, message: expect.stringMatching(expected.message) } : expected,
  );
});
